"""The smallest example: a plain training loop and one line more; it needs torch and safetensors alone.

    python examples/attach.py

`make dist` runs it in an environment that has nothing else.
"""

import torch

import deelbo


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 10)
    y = (x[:, 0] + x[:, 1] > 0).long()
    model = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
    prior = deelbo.priors.l2_sp(model, head="2")
    objective = deelbo.DataEmphasizedELBO(deelbo.IsotropicPosterior(model), prior, num_data=len(x))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    objective.attach(optimizer)  # the only new line of the loop
    for _ in range(200):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean().item()
    learned = ", ".join(f"{name} {value:.2g}" for name, value in prior.variances.items())
    print(f"deelbo {deelbo.__version__}, kappa {objective.kappa:.1f}: learned variances {learned}; {right:.0%} right")
    if right < 0.9 or 1.0 in prior.variances.values():  # where they start
        raise SystemExit("deelbo did not learn")


if __name__ == "__main__":
    main()
