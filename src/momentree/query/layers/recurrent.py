"""Recurrent layers of torch, taken apart into linear maps whose books are kept like any other's.

The same arithmetic as torch's fused cells, a step of time after the other, so that every use of the weights is seen.
All steps of a layer use its weights, so the pieces of a weight are joined along the steps (`momentree.query.layers
.gradient`). The fused cells are faster forwards, but no per-example gradient comes out of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def _lstm_cell(gates: Tensor, hidden: Tensor, cell: Tensor, weights: list[Any]) -> tuple[Tensor, Tensor]:
    _, weight, _, bias = weights[:4]
    enter, forget, new, leave = (gates + F.linear(hidden, weight, bias)).chunk(4, -1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
    hidden = torch.sigmoid(leave) * torch.tanh(cell)
    return (F.linear(hidden, weights[4]) if len(weights) > 4 else hidden), cell


def _gru_cell(gates: Tensor, hidden: Tensor, cell: Tensor, weights: list[Any]) -> tuple[Tensor, Tensor]:
    _, weight, _, bias = weights
    reset, update, new = gates.chunk(3, -1)
    own_reset, own_update, own_new = F.linear(hidden, weight, bias).chunk(3, -1)
    keep = torch.sigmoid(update + own_update)
    fresh = torch.tanh(new + torch.sigmoid(reset + own_reset) * own_new)
    return keep * hidden + (1 - keep) * fresh, cell


def _tanh_cell(gates: Tensor, hidden: Tensor, cell: Tensor, weights: list[Any]) -> tuple[Tensor, Tensor]:
    return torch.tanh(gates + F.linear(hidden, weights[1], weights[3])), cell


def _relu_cell(gates: Tensor, hidden: Tensor, cell: Tensor, weights: list[Any]) -> tuple[Tensor, Tensor]:
    return torch.relu(gates + F.linear(hidden, weights[1], weights[3])), cell


CELLS: dict[Any, Callable[..., tuple[Tensor, Tensor]]] = {
    torch.lstm: _lstm_cell,
    torch.gru: _gru_cell,
    torch.rnn_tanh: _tanh_cell,
    torch.rnn_relu: _relu_cell,
}


def recurrent(func: Any, args: tuple[Any, ...]) -> Any:
    """`torch.lstm` and its like on a batch (not on packed sequences), by the cells above; None where it is neither."""
    if len(args) != 9 or not isinstance(args[0], Tensor) or isinstance(args[1], Tensor) is (func is torch.lstm):
        return None
    input, state, flat, biased, layers, drop, training, both, batch_first = args
    if not isinstance(flat, list | tuple) or input.dim() != 3:
        return None
    hiddens, cells = state if func is torch.lstm else (state, state)
    directions = 2 if both else 1
    each = len(flat) // (layers * directions)
    x = input if batch_first else input.transpose(0, 1)
    last_hiddens, last_cells = [], []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            at = layer * directions + direction
            own = list(flat[at * each : (at + 1) * each])
            weights = own if biased else [own[0], own[1], None, None, *own[2:]]
            gates = F.linear(x, weights[0], weights[2])
            # zeros that depend on the input, so that inside vmap the state is one of each example
            nothing = torch.zeros_like(x[:, :1, 0])
            hidden, cell = hiddens[at] + nothing, cells[at] + nothing
            steps = range(x.shape[1]) if direction == 0 else range(x.shape[1] - 1, -1, -1)
            found = []
            for t in steps:
                hidden, cell = CELLS[func](gates[:, t], hidden, cell, weights)
                found.append(hidden)
            outputs.append(torch.stack(found if direction == 0 else found[::-1], 1))
            last_hiddens.append(hidden)
            last_cells.append(cell)
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if drop and training and layer < layers - 1:
            x = F.dropout(x, drop, True)
    out = x if batch_first else x.transpose(0, 1)
    if func is torch.lstm:
        return out, torch.stack(last_hiddens), torch.stack(last_cells)
    return out, torch.stack(last_hiddens)
