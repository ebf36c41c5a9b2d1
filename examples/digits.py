"""Learn the strength of regularisation from 300 handwritten digits, without a validation set: `make example`."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import deelbo


def data() -> list[torch.Tensor]:
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    return train_test_split(images.float() / 16, labels, train_size=300, stratify=labels, random_state=0)


def train(kappa: float | None, steps: int = 500) -> None:
    torch.manual_seed(0)
    x, x_test, y, y_test = data()
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    posterior = deelbo.IsotropicPosterior(model)
    prior = deelbo.priors.l2_zero(model, head="2")
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=len(x), kappa=kappa)
    optimizer = torch.optim.SGD(posterior.parameters(), lr=0.03, momentum=0.9, nesterov=True)
    for _ in range(steps):
        optimizer.zero_grad()
        with posterior.sample():
            F.cross_entropy(model(x), y).backward()
        objective.backward()
        torch.nn.utils.clip_grad_norm_(posterior.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        accuracy = (model(x_test).argmax(1) == y_test).float().mean()
    learned = ", ".join(f"{name} variance {value:.2g}" for name, value in prior.variances.items())
    print(
        f"kappa {objective.kappa:5.1f}: accuracy {accuracy:.1%} on {len(y_test)} test images; learned {learned}, ",
        end="",
    )
    print(f"scale {posterior.scale.item():.2g}")


if __name__ == "__main__":
    print("ELBO")
    train(kappa=1.0)
    print("data-emphasized ELBO, kappa = D/N")
    train(kappa=None)
