"""Lets torchvision be imported where its C++ operators do not load, as its CUDA wheel beside a CPU build of torch."""

import torch


def _nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    left, order = [], scores.argsort(descending=True)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    while order.numel():
        first, order = order[0], order[1:]
        left.append(first)
        low = torch.maximum(boxes[first, :2], boxes[order, :2])
        high = torch.minimum(boxes[first, 2:], boxes[order, 2:])
        inter = (high - low).clamp(min=0).prod(1)
        order = order[inter / (area[first] + area[order] - inter) <= iou_threshold]
    return torch.stack(left) if left else torch.empty(0, dtype=torch.int64)


SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

try:
    import torchvision
except RuntimeError:  # its stand-ins for tracing ask for these two
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", SCHEMA)
        torch.library.impl(f"torchvision::{name}", "cpu", _nms)
    import torchvision
    import torchvision.extension

    torchvision.extension._has_ops = lambda: True
