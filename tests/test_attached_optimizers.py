"""Attached loops with all kinds of optimizers, scalers, schedulers and wrappers."""

import io
import warnings

import pytest
import torch
import torch.nn.functional as F

import deelbo
from shared.attached import assert_same_training, attached, explicit, make
from shared.cases import Net, batch, copies, same


@pytest.mark.parametrize("set_to_none", [True, False])
def test_step_skipped_by_the_grad_scaler_leaves_no_noise(set_to_none):
    net, objective, optimizer = make(Net(dtype=torch.float32))
    objective.attach(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    x, y = batch(dtype=torch.float32)
    before = copies(net)
    variances = objective.prior.variances
    scaler.scale(F.cross_entropy(net(x), y) * float("inf")).backward()
    assert same(net, before)
    scaler.step(optimizer)
    scaler.update()
    assert same(net, before)
    assert objective.prior.variances == variances
    for _ in range(3):
        optimizer.zero_grad(set_to_none=set_to_none)
        scaler.scale(F.cross_entropy(net(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert not same(net, before)
    assert all(bool(p.isfinite().all()) for p in objective.posterior.parameters())


def test_grad_scaler_does_not_change_the_training():
    results = []
    for enabled in (False, True):
        torch.manual_seed(0)
        net, objective, optimizer = make(Net(dtype=torch.float32))
        objective.attach(optimizer)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=enabled)
        x, y = batch(dtype=torch.float32)
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(net(x), y)).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        results.append((net, objective))
    assert_same_training(*results, exact=False)


def test_explicit_loop_with_grad_scaler():
    results = []
    for enabled in (False, True):
        torch.manual_seed(0)
        net, objective, _ = make(Net(dtype=torch.float32))
        optimizer = torch.optim.SGD(objective.posterior.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=enabled)
        x, y = batch(dtype=torch.float32)
        for _ in range(3):
            optimizer.zero_grad()
            with objective.posterior.sample():
                scaler.scale(F.cross_entropy(net(x), y)).backward()
            scaler.unscale_(optimizer)
            objective.backward()
            scaler.step(optimizer)
            scaler.update()
        results.append((net, objective))
    assert_same_training(*results, exact=False)


def test_fused_optimizer_with_grad_scaler():
    results = []
    for fused in (False, True):
        torch.manual_seed(0)
        net, objective, optimizer = make(Net(dtype=torch.float32), fused=fused)
        objective.attach(optimizer)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        x, y = batch(dtype=torch.float32)
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(net(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append((net, objective))
    assert_same_training(*results, exact=False)


def test_grad_scaler_recovers_when_the_model_clears_gradients():
    net, objective, optimizer = make(Net(dtype=torch.float32))
    objective.attach(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    x, y = batch(dtype=torch.float32)
    for step in range(4):
        net.zero_grad(set_to_none=False)
        factor = float("inf") if step == 1 else 1.0
        scaler.scale(F.cross_entropy(net(x), y) * factor).backward()
        before = copies(net)
        scaler.step(optimizer)
        scaler.update()
        assert same(net, before) == (step == 1)


def test_optimizers_with_parameter_names():
    net, objective, _ = make()
    for decay in (0.0, 0.1):
        optimizer = torch.optim.SGD(net.named_parameters(), lr=0.1, weight_decay=decay)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            handle = objective.attach(optimizer)
        assert all(len(group["params"]) == len(group["param_names"]) for group in optimizer.param_groups)
        handle.remove()
        assert optimizer.param_groups[0]["param_names"] == [name for name, _ in net.named_parameters()]
        assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.AdamW])
def test_closures(optimizer_class, by_name):
    options = {"optimizer_class": optimizer_class, "weight_decay": 0.0}
    net, objective, optimizer = make(**options)
    objective.attach(optimizer)
    x, y = batch()

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss

    losses = [optimizer.step(closure=closure) if by_name else optimizer.step(closure) for _ in range(3)]
    assert all(float(loss) > 0 for loss in losses)
    assert_same_training((net, objective), explicit(**options))


def test_a_closure_that_fails_leaves_the_mean():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    before = copies(net)
    x, _ = batch()

    def closure():
        net(x)
        raise KeyError("in the loss")

    with pytest.raises(KeyError, match="in the loss"):
        optimizer.step(closure)
    net.state_dict()
    assert same(net, before)


@pytest.mark.parametrize("scale_update", ["closed-form", "gradient"])
def test_the_whole_gradient_is_clipped(scale_update):
    limit = 0.05
    net, objective, optimizer = make(scale_update=scale_update)
    objective.attach(optimizer, max_norm=limit)
    other, reference, other_optimizer = make(scale_update=scale_update)
    other_optimizer.param_groups[0]["params"].extend(reference.posterior.scale_parameters())
    x, y = batch()
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        other_optimizer.zero_grad()
        with reference.posterior.sample():
            F.cross_entropy(other(x), y).backward()
        reference.backward()
        norm = torch.nn.utils.clip_grad_norm_(reference.posterior.parameters(), limit)
        assert norm > 2 * limit  # clipping does something here
        other_optimizer.step()
    assert_same_training((net, objective), (other, reference))
    for wrong in (0, -1.0):
        with pytest.raises(ValueError, match="max_norm="):
            make()[1].attach(optimizer, max_norm=wrong)


@pytest.mark.parametrize("scale_update", ["closed-form", "gradient"])
def test_the_state_of_the_optimizer_resumes_everything(scale_update):
    """A host that saves network and optimizer, and nothing of ours, continues as if it had not stopped."""
    options = {"scale_update": scale_update, "momentum": 0.9}
    whole = attached(steps=6, **options)
    net, objective, optimizer = make(**options)
    handle = objective.attach(optimizer)
    x, y = batch()

    def train(steps, net, optimizer):
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()

    train(3, net, optimizer)
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    handle.remove()
    assert "deelbo" not in optimizer.state_dict()
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again, other, other_optimizer = make(**options)
    for parameter in again.parameters():
        parameter.data.add_(1.0)  # of another start, as when the network is read from the checkpoint
    other = deelbo.DataEmphasizedELBO(
        deelbo.IsotropicPosterior(again, seed=1, scale_update=scale_update), deelbo.priors.l2_sp(again, head="head"), 12
    )
    other.attach(other_optimizer)
    again.load_state_dict(saved["net"])
    other_optimizer.load_state_dict(saved["optimizer"])
    train(3, again, other_optimizer)
    assert_same_training((again, other), whole)


def test_state_of_an_optimizer_that_was_not_attached():
    _, objective, optimizer = make(momentum=0.9)
    objective.attach(optimizer)
    scale = objective.posterior.scale.item()
    plain = {name: value for name, value in optimizer.state_dict().items() if name != "deelbo"}
    optimizer.load_state_dict(plain)
    assert objective.posterior.scale.item() == scale
    with pytest.raises(ValueError, match=r"saved by a loop without deelbo.*start the training anew"):
        optimizer.load_state_dict(make(momentum=0.9)[2].state_dict())


def test_the_scale_has_a_group_of_its_own_where_rates_differ():
    net, _, _ = make()
    groups = [
        {"params": list(net.body.parameters()), "lr": 0.1, "lr_scale": 0.5},
        {"params": [p for name, p in net.named_parameters() if not name.startswith("body")], "lr": 0.1},
    ]
    for scale_update, expected in (("gradient", 3), ("closed-form", 2)):
        posterior = deelbo.IsotropicPosterior(net, scale_update=scale_update)
        objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(net, head="head"), 12)
        optimizer = torch.optim.SGD([dict(group) for group in groups])
        handle = objective.attach(optimizer)
        assert len(optimizer.param_groups) == expected
        owner = next(g for g in optimizer.param_groups if any(p is posterior.raw_scale for p in g["params"]))
        if expected == 3:
            assert owner["lr"] * owner.get("lr_scale", 1) == 0.1
            assert len(owner["params"]) == 1
        handle.remove()
        assert len(optimizer.param_groups) == 2


def test_weight_decay_warns_and_never_touches_the_scale():
    net, objective, optimizer = make(weight_decay=0.5)
    with pytest.warns(UserWarning, match="set weight_decay=0"):
        objective.attach(optimizer)
    assert optimizer.param_groups[-1]["params"] == objective.posterior.scale_parameters()
    assert optimizer.param_groups[-1]["weight_decay"] == 0
    net, objective, _ = make()
    decay = {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": 0.1}
    rest = {"params": [p for p in net.parameters() if p.ndim <= 1]}
    optimizer = torch.optim.SGD([decay, rest], lr=0.1)
    with pytest.warns(UserWarning, match="set weight_decay=0"):
        handle = objective.attach(optimizer)
    assert any(p is objective.posterior.raw_scale for p in optimizer.param_groups[1]["params"])
    handle.remove()
    assert len(optimizer.param_groups) == 2


def test_no_warning_without_weight_decay():
    _, objective, optimizer = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objective.attach(optimizer)


def test_existing_schedulers_apply_to_the_scale():
    net, objective, optimizer = make(scale_update="gradient")
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    objective.attach(optimizer)
    x, y = batch()
    for _ in range(3):
        scale = objective.posterior.scale.item()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    assert objective.posterior.scale.item() == scale  # the learning rate of the third step is zero


def test_loops_that_clear_gradients_by_the_model():
    results = []
    for by_model in (False, True):
        net, objective, optimizer = make()
        objective.attach(optimizer)
        x, y = batch()
        for _ in range(3):
            net.zero_grad(set_to_none=False) if by_model else optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        results.append((net, objective))
    assert_same_training(*results, exact=False)


def test_optimizer_that_has_the_scale_already():
    net, objective, _ = make()
    optimizer = torch.optim.SGD(objective.posterior.parameters(), lr=0.1)
    handle = objective.attach(optimizer)
    assert sum(p is objective.posterior.raw_scale for p in optimizer.param_groups[0]["params"]) == 1
    handle.remove()
    assert sum(p is objective.posterior.raw_scale for p in optimizer.param_groups[0]["params"]) == 1
    assert net is objective.posterior.model


def test_autocast_and_compile():
    x, y = batch(dtype=torch.float32)
    results = {}
    for how in ("eager", "compiled before", "compiled after"):
        torch._dynamo.reset()
        torch.manual_seed(0)
        net = Net(dtype=torch.float32)
        called = torch.compile(net, backend="aot_eager") if how == "compiled before" else net
        _, objective, optimizer = make(called)
        objective.attach(optimizer)
        if how == "compiled after":
            called = torch.compile(net, backend="aot_eager")
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(called(x), y).backward()
            assert not objective.posterior.sampling
            optimizer.step()
        assert objective.posterior.draws == 3
        results[how] = net, objective
    assert_same_training(results["eager"], results["compiled before"], exact=False)
    assert_same_training(results["eager"], results["compiled after"], exact=False)

    torch.manual_seed(0)
    net, objective, optimizer = make(Net(dtype=torch.float32))
    objective.attach(optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    for p, reference in zip(net.parameters(), results["eager"][0].parameters(), strict=True):
        torch.testing.assert_close(p, reference, rtol=0.05, atol=0.02)


def test_a_compiled_step_calls_the_hooks():
    torch._dynamo.reset()
    net, objective, optimizer = make()
    objective.attach(optimizer)
    step = torch.compile(optimizer.step, backend="eager")
    x, y = batch()
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        step()
    assert_same_training((net, objective), explicit(), exact=False)


def test_accelerate_wrappers():
    accelerate = pytest.importorskip("accelerate")
    net, objective, optimizer = make()
    accelerator = accelerate.Accelerator(cpu=True)
    optimizer = accelerator.prepare(optimizer)
    objective.attach(optimizer)
    x, y = batch()
    for _ in range(3):
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(net(x), y))
        optimizer.step()
    assert_same_training((net, objective), explicit())
