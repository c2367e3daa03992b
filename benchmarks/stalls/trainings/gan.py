"""DCGAN's order: two backwards and a step of the discriminator, then one and a step of the generator; Adam twice."""

from __future__ import annotations

import torch
from planted import begin
from samples import FEATURES, Samples
from torch import nn
from torch.utils.data import DataLoader
from truth_clock import now

NOISE = 64


def discriminator(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(FEATURES, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)
    )


def generator(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(NOISE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, FEATURES), nn.Tanh()
    )


def main() -> None:
    plan, truth, faults = begin()
    dataset = Samples(plan, truth.path, plan["steps"])
    loader = DataLoader(dataset, batch_size=plan["batch"], num_workers=plan["workers"])
    net_d, net_g = discriminator(plan["width"]), generator(plan["width"])
    optimizer_d = torch.optim.Adam(net_d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_g = torch.optim.Adam(net_g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    mark = now()
    for step, (real, _) in enumerate(loader):
        fetch = now() - mark
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)

        net_d.zero_grad()
        criterion(net_d(real), ones).backward()
        fake = net_g(torch.randn(len(real), NOISE))
        criterion(net_d(fake.detach()), zeros).backward()
        stepping = now()
        optimizer_d.step()

        net_g.zero_grad()
        criterion(net_d(fake), ones).backward()
        optimizer_g.step()

        faults.at("after", step, net_g)
        end = now()
        truth.iteration(step, mark, stepping, end, fetch)
        mark = end
    truth.count(optimizer_steps=plan["steps"])
    faults.close()


if __name__ == "__main__":
    main()
