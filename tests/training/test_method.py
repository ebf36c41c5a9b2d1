"""What the loop asks of every method."""

import pytest

from deelbo.training.method import METHODS, load_variance_state, variance_state, variances_by_column
from shared.cases import Net
from shared.methods import MethodCase, view


def test_every_method_says_what_the_report_shows():
    assert METHODS.names() == ["de-elbo", "elbo", "la-lml", "map", "probe"]
    for name in METHODS:
        method = METHODS[name]
        assert method.name == name
        assert method.penalty.column
        assert set(method.needed_settings) <= set(method.own_settings)


@pytest.mark.parametrize("name", ["de-elbo", "elbo", "la-lml"])
def test_the_columns_that_the_report_shows_are_learned(name):
    case = MethodCase(name)
    columns = {case.method.penalty.column, *(quantity.column for quantity in case.method.quantities)}
    assert columns <= set(case.method.learned())
    assert bool(case.method.variances_are_learned)


def test_variances_as_columns_and_as_a_state():
    from deelbo.priors import l2_sp

    one, other = l2_sp(Net(), head="head"), l2_sp(Net(), head="head")
    one.set_variances({"backbone": 0.25, "head": 3.0})
    assert variances_by_column(one) == {"variance_backbone": 0.25, "variance_head": 3.0}
    state = variance_state(one)
    assert set(state) == {"variance.backbone", "variance.head"}
    load_variance_state(other, {**state, "something": state["variance.head"]})
    assert other.variances == {"backbone": 0.25, "head": 3.0}


def test_a_method_without_parameters_of_its_own_has_no_state():
    method = MethodCase("map", prior_variances={"backbone": 1.0, "head": 1.0}).method
    assert method.state_dict() == {}
    method.load_state_dict({})
    method.end_epoch(view(lambda: 0.0))
    assert method.posterior is None
