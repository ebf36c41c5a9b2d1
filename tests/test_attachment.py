"""Attached networks: when the weights are a draw, and when the mean."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from shared.attached import assert_same_training, attached, explicit, make
from shared.cases import Net, batch, copies, same


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.9, "nesterov": True},
        {"optimizer_class": torch.optim.AdamW, "weight_decay": 0.0, "lr": 0.01},
    ],
)
def test_attached_training_is_explicit_training(options):
    assert_same_training(explicit(**options), attached(**options))


def test_weights_are_drawn_between_forward_and_the_end_of_backward_only():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    before = copies(net)
    x, y = batch()
    loss = F.cross_entropy(net(x), y)
    assert not same(net, before)
    loss.backward()
    assert same(net, before)
    optimizer.step()
    assert not same(net, before)


def test_gradient_accumulation_averages_draws():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    x, y = batch()
    for part in (0, 1):
        (F.cross_entropy(net(x[part::2]), y[part::2]) / 2).backward()
    optimizer.step()

    other, reference, ref_optimizer = make()
    ref_optimizer.param_groups[0]["params"].extend(reference.posterior.scale_parameters())
    for part in (0, 1):
        with reference.posterior.sample():
            (F.cross_entropy(other(x[part::2]), y[part::2]) / 2).backward()
    reference.backward()
    ref_optimizer.step()
    assert_same_training((net, objective), (other, reference), exact=False)


def test_two_forward_passes_share_a_draw_and_two_backward_passes_too():
    gradients = []
    for joint in (True, False):
        net, objective, optimizer = make()
        objective.attach(optimizer)
        x, y = batch()
        first, second = F.cross_entropy(net(x[:6]), y[:6]), F.cross_entropy(net(x[6:]), y[6:])
        assert objective.posterior.draws == 1
        if joint:
            (first + second).backward()
        else:
            first.backward()
            second.backward()  # the draw is written again for it
        assert not objective.posterior.sampling
        gradients.append([p.grad.clone() for p in objective.posterior.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_retained_graph_may_be_used_twice():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    x, y = batch()
    loss = F.cross_entropy(net(x), y)
    loss.backward(retain_graph=True)
    once = [p.grad.clone() for p in objective.posterior.parameters()]
    loss.backward()
    for p, g in zip(objective.posterior.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, 2 * g, rtol=1e-10, atol=1e-12)


def test_backward_of_an_older_draw_is_an_error():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    x, y = batch()
    loss = F.cross_entropy(net(x), y)
    loss.backward(retain_graph=True)
    net(x)
    with pytest.raises(RuntimeError, match="earlier draw"):
        loss.backward()


def test_gradient_penalty_on_the_way_to_the_loss():
    net, objective, optimizer = make()
    handle = objective.attach(optimizer)
    x, y = batch()
    x.requires_grad_()
    output = net(x)
    (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    assert objective.posterior.sampling  # the loss is still to come
    drawn = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
    (F.cross_entropy(output, y) + slope.square().sum()).backward()
    assert not objective.posterior.sampling
    handle.remove()
    output = torch.func.functional_call(net, drawn, (x,))
    (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    reference = F.cross_entropy(output, y) + slope.square().sum()
    for p, g in zip(net.parameters(), torch.autograd.grad(reference, list(drawn.values())), strict=True):
        torch.testing.assert_close(p.grad, g, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant):
    class Checkpointed(Net):
        def forward(self, x):
            hidden = checkpoint(lambda h: torch.tanh(self.norm(self.body(h))), x, use_reentrant=reentrant)
            return self.head(checkpoint(torch.sigmoid, hidden, use_reentrant=reentrant))

    class Plain(Net):
        def forward(self, x):
            return self.head(torch.sigmoid(torch.tanh(self.norm(self.body(x)))))

    gradients = []
    for network in (Checkpointed, Plain):
        torch.manual_seed(0)
        net, objective, optimizer = make(network())
        objective.attach(optimizer)
        x, y = batch()
        F.cross_entropy(net(x.requires_grad_()), y).backward()
        gradients.append([p.grad for p in objective.posterior.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_evaluation_sees_the_mean_also_between_forward_and_backward():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    x, y = batch()
    net.eval()
    expected = net(x)
    assert objective.posterior.draws == 0
    net.train()
    loss = F.cross_entropy(net(x), y)
    drawn = copies(net)
    net.eval()
    assert torch.equal(net(x), expected)
    with torch.no_grad():
        net.train()
        assert torch.equal(net(x), expected)  # nothing to learn from this pass
    assert same(net, drawn)
    loss.backward()
    optimizer.step()


def test_estimates_and_blocks_work_while_attached():
    net, objective, optimizer = make()
    handle = objective.attach(optimizer)
    x, y = batch()

    def log_likelihood():
        return -F.cross_entropy(net(x), y, reduction="sum")

    value = objective.estimate(log_likelihood, samples=3)
    handle.remove()
    assert value == objective.estimate(log_likelihood, samples=3)


def test_checkpoint_in_the_middle_of_a_draw_holds_the_mean():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    before = copies(net)
    x, _ = batch()
    net(x)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert same(net, before)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failed_forward_pass(error):
    class Fails(Net):
        fail = False

        def forward(self, x):
            if self.fail:
                raise error
            return super().forward(x)

    net, objective, optimizer = make(Fails())
    objective.attach(optimizer)
    before = copies(net)
    x, y = batch()
    net.fail = True
    with pytest.raises(error):
        net(x)
    if error is KeyboardInterrupt:  # after which PyTorch calls no hook
        net.state_dict()
    assert same(net, before)
    net.fail = False
    try:
        raise OSError  # a loop inside an except block
    except OSError:
        F.cross_entropy(net(x), y).backward()
    optimizer.step()
    assert not same(net, before)


def test_remove_makes_everything_what_it_was():
    net, objective, optimizer = make(momentum=0.9)
    parameters = list(optimizer.param_groups[0]["params"])
    handle = objective.attach(optimizer)
    x, y = batch()
    F.cross_entropy(net(x), y).backward()
    optimizer.step()
    before = copies(net)
    net(x)
    handle.remove()
    assert same(net, before)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in parameters]
    assert len(optimizer.state) == len(parameters)
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    assert same(net, before)
    loss.backward()
    optimizer.step()
    objective.attach(optimizer).remove()


def test_attaching_twice_is_an_error():
    net, objective, optimizer = make()
    handle = objective.attach(optimizer)
    with pytest.raises(RuntimeError, match="attached already"):
        objective.attach(optimizer)
    _, other, other_optimizer = make(net)
    with pytest.raises(RuntimeError, match="attached already"):
        other.attach(other_optimizer)
    handle.remove()
    second = other.attach(other_optimizer)
    handle.remove()  # again, which does nothing
    with pytest.raises(RuntimeError, match="attached already"):
        objective.attach(optimizer)
    second.remove()


def test_explicit_backward_while_attached_is_an_error():
    _, objective, optimizer = make()
    objective.attach(optimizer)
    with pytest.raises(RuntimeError, match=r"optimizer.step"):
        objective.backward()


def test_removal_before_the_backward_pass_is_noticed_by_autograd():
    net, objective, optimizer = make()
    handle = objective.attach(optimizer)
    x, y = batch()
    loss = F.cross_entropy(net(x), y)
    handle.remove()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_loading_weights_in_the_middle_of_a_draw():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    x, y = batch()
    ones = {name: torch.ones_like(value) for name, value in net.state_dict().items()}
    net(x)
    net.load_state_dict(ones)
    F.cross_entropy(net(x), y).backward()
    assert same(net, ones)


def test_parts_of_the_network_save_the_mean_as_well():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    before = copies(net)
    net(batch()[0])
    assert torch.equal(net.head.state_dict()["weight"], before["head.weight"])


def test_networks_that_return_a_parameter():
    class Both(Net):
        def forward(self, x):
            return super().forward(x), self.head.bias

    net, objective, optimizer = make(Both())
    objective.attach(optimizer)
    x, y = batch()
    for _ in range(3):
        optimizer.zero_grad()
        output, bias = net(x)
        (F.cross_entropy(output, y) + bias.square().sum()).backward()
        optimizer.step()


def test_network_can_be_pickled_while_attached(tmp_path):
    net, objective, optimizer = make()
    objective.attach(optimizer)
    torch.save(net, tmp_path / "net.pt")
    again = torch.load(tmp_path / "net.pt", weights_only=False)
    again(batch()[0])
    assert same(again, copies(net))
    assert copy.deepcopy(objective).posterior.attachment is None


def test_estimates_with_a_pending_draw():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    x, y = batch()
    loss = F.cross_entropy(net(x), y)
    objective.estimate(lambda: -F.cross_entropy(net(x), y, reduction="sum"), samples=2)
    loss.backward()
    optimizer.step()
    assert_same_training((net, objective), explicit(steps=1), exact=False)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_the_whole_network(reentrant):
    net, objective, optimizer = make()
    objective.attach(optimizer)
    x, y = batch()
    optimizer.zero_grad()
    F.cross_entropy(checkpoint(net, x.requires_grad_(), use_reentrant=reentrant), y).backward()
    if reentrant:  # its forward pass runs without gradients, so there is no draw to learn from
        with pytest.raises(RuntimeError, match="use_reentrant=True"):
            optimizer.step()
    else:
        optimizer.step()
        assert_same_training((net, objective), explicit(steps=1), exact=False)


def test_gradients_cleared_between_forward_and_backward():
    results = []
    for late in (False, True):
        net, objective, optimizer = make()
        objective.attach(optimizer)
        x, y = batch()
        for _ in range(3):
            if not late:
                net.zero_grad()
            loss = F.cross_entropy(net(x), y)
            if late:
                net.zero_grad()
            loss.backward()
            optimizer.step()
        results.append((net, objective))
    assert_same_training(*results)


def test_step_without_a_training_pass_is_an_error():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    x, y = batch()
    F.cross_entropy(net.forward(x), y).backward()
    with pytest.raises(RuntimeError, match="call the network itself"):
        optimizer.step()


def test_deep_copies_are_plain_networks():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    average = copy.deepcopy(net)
    x, _ = batch()
    before = copies(net)
    average(x)
    assert same(net, before)
    assert same(average, before)
    assert not objective.posterior.sampling


def test_outputs_in_containers():
    @dataclasses.dataclass
    class Output:
        logits: torch.Tensor
        name: str = "x"

    class Custom:
        def __init__(self, logits):
            self.logits = logits

    for wrap, read in [
        (lambda o: {"a": [o]}, lambda o: o["a"][0]),
        (lambda o: (None, o), lambda o: o[1]),
        (Output, lambda o: o.logits),
        (Custom, lambda o: o.logits),  # not seen: the means come back at optimizer.step()
    ]:

        class Wrapped(Net):
            def forward(self, x, wrap=wrap):
                return wrap(super().forward(x))

        torch.manual_seed(0)
        net, objective, optimizer = make(Wrapped())
        objective.attach(optimizer)
        x, y = batch()
        F.cross_entropy(read(net(x)), y).backward()
        assert objective.posterior.sampling == (wrap is Custom)
        optimizer.step()
        assert not objective.posterior.sampling
        assert_same_training((net, objective), explicit(steps=1))


def test_batch_normalisation_keeps_its_statistics():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    _, objective, optimizer = make(net, head="2")
    objective.attach(optimizer)
    x, y = batch()
    F.cross_entropy(net(x), y).backward()
    optimizer.step()
    assert int(net[1].num_batches_tracked) == 1
