"""The cost model: a small sequence model over schedule steps that ranks the candidates of a task.

Scores are comparable within one task only: the higher, the faster the candidate is expected to run. An ensemble of
heads over one shared trunk gives the uncertainty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcl.costmodel.mamba import Mamba, Mamba2
from tcl.features.batch import STEP_WIDTH, FeatureBatch
from tcl.features.device import DEVICE_WIDTH
from tcl.features.vocabulary import PADDING, VOCABULARY_SIZE
from tcl.features.workload import WORKLOAD_WIDTH


@dataclass(frozen=True)
class CostModelConfig:
    """Shape of a cost model; the defaults make fewer than 100,000 parameters (0.4 MB).

    Attributes
    ----------
    block
        Sequence block of each layer, a key of `BLOCKS`.
    width, layers
        Channels of a step, and number of blocks.
    state
        State size of a Mamba block.
    heads, hidden
        Members of the ensemble, and hidden width of each.
    kinds, values, workload, device
        Widths of the features the model reads.
    """

    block: str = "mamba2"
    width: int = 48
    layers: int = 1
    state: int = 16
    heads: int = 4
    hidden: int = 24
    kinds: int = VOCABULARY_SIZE
    values: int = STEP_WIDTH
    workload: int = WORKLOAD_WIDTH
    device: int = DEVICE_WIDTH

    def to_json(self) -> dict[str, Any]:
        """The configuration as a JSON object; ``CostModelConfig(**data)`` reads it."""
        return asdict(self)


class Steps(nn.Module):
    """A block without memory, the same small network at every step: what is left of a sequence model without one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down(F.silu(self.up(hidden)))


class Recurrent(nn.Module):
    """An LSTM layer as a block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.lstm(hidden)[0]


BLOCKS: dict[str, Callable[[CostModelConfig], nn.Module]] = {
    "mamba1": lambda config: Mamba(config.width, config.state),
    "mamba2": lambda config: Mamba2(config.width, config.state),
    "lstm": lambda config: Recurrent(config.width),
    "mlp": lambda config: Steps(config.width),
}
"""Causal blocks by name: float[n, L, width] to the same shape."""


@dataclass
class Inputs:
    """A feature batch as tensors: kinds int64[n, L]; values, workload and device float32 as there."""

    kinds: Tensor
    values: Tensor
    workload: Tensor
    device: Tensor

    @classmethod
    def of(cls, batch: FeatureBatch, where: torch.device | str = "cpu") -> Inputs:
        """The tensors of `batch`, without the columns that are padding in every row."""
        steps = max(1, int((batch.kinds != PADDING).sum(1).max(initial=1)))
        kinds = torch.from_numpy(batch.kinds[:, :steps].astype(np.int64))
        arrays = (batch.values[:, :steps], batch.workload, batch.device)
        return cls(
            *(t.to(where) for t in (kinds, *(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)))
        )


class Scorer(nn.Module):
    """Anything that scores feature batches by an ensemble of heads; `forward` maps `Inputs` to float[n, heads].

    Scores are on the scale of `tcl.costmodel.losses.target_score`. `uncertainty_scale` makes the spread of the heads as
    large as the error that training saw on held-out tasks.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.uncertainty_scale = nn.Buffer(torch.ones(()))

    def score(self, batch: FeatureBatch) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the ensemble for each candidate, both float32[n]; higher mean is faster."""
        scores = self.head_scores(batch)
        return scores.mean(1), scores.std(1) * float(self.uncertainty_scale)

    def head_scores(self, batch: FeatureBatch) -> np.ndarray:
        """The score of every head: float32[n, heads]."""
        return self._in_chunks(batch, self.forward)

    def _in_chunks(
        self, batch: FeatureBatch, function: Callable[[Inputs], Tensor], chunk: int = 512
    ) -> np.ndarray:
        """Apply `function` in inference mode to candidates of like length together, bounded in memory."""
        if not len(batch):
            one = FeatureBatch(
                *(np.zeros((1, *array.shape[1:]), array.dtype) for array in vars(batch).values())
            )
            return self._in_chunks(one, function)[:0]
        self.eval()
        where = next(self.parameters()).device
        order = np.argsort((batch.kinds != PADDING).sum(1), kind="stable")
        results = []
        with torch.inference_mode():
            for start in range(0, len(order), chunk):
                rows = order[start : start + chunk]
                results.append(function(Inputs.of(batch.take(rows), where)).float().cpu().numpy())
        together = np.concatenate(results)
        out = np.empty_like(together)
        out[order] = together
        return out


class CostModel(Scorer):
    """Scores candidates from their schedule steps, their workload and the device.

    Parameters
    ----------
    config
        The shape.
    knowledge_base
        A frozen model of the same shape whose layers this one reads through lateral connections (progressive networks,
        Rusu et al. 2016, arXiv 1606.04671; Progress & Compress, arXiv 1805.06370); None for a model on its own.

    Notes
    -----
    Each step becomes ``kind embedding + values projected by kind + context``, where the context is a projection of
    workload and device. Pre-norm residual blocks follow. The mean, the maximum and the last of the steps that are no
    padding, beside the context, go to the heads. All blocks are causal and padding is at the end, so no score depends
    on padding.
    """

    def __init__(self, config: CostModelConfig, knowledge_base: CostModel | None = None) -> None:
        super().__init__(config.heads)
        self.config = config
        width = config.width
        self.kind = nn.Embedding(config.kinds, width, padding_idx=PADDING)
        # A value means something else in each kind of step, so each has its own projection.
        self.value = nn.Parameter(torch.randn(config.kinds, config.values, width) * config.values**-0.5)
        self.context = nn.Sequential(
            nn.Linear(config.workload + config.device, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(config.layers + 1))
        self.blocks = nn.ModuleList(BLOCKS[config.block](config) for _ in range(config.layers))
        pooled = 4 * width
        self.head_in = nn.Parameter(
            torch.empty(config.heads, pooled, config.hidden).uniform_(-1, 1) * pooled**-0.5
        )
        self.head_bias = nn.Parameter(torch.zeros(config.heads, 1, config.hidden))
        self.head_out = nn.Parameter(
            torch.empty(config.heads, config.hidden, 1).uniform_(-1, 1) * config.hidden**-0.5
        )
        self.knowledge_base = knowledge_base
        if knowledge_base is not None:
            knowledge_base.requires_grad_(False)
            laterals = [nn.Linear(width, width, bias=False) for _ in range(config.layers + 1)]
            for lateral in laterals:
                nn.init.zeros_(lateral.weight)  # start as if there were no knowledge base
            self.laterals = nn.ModuleList(laterals)

    def _project(self, inputs: Inputs) -> Tensor:
        """Each step's values through the projection of its kind, float[n, L, width]: one product for each kind."""
        kinds, order = inputs.kinds.flatten().sort(stable=True)
        counts = torch.bincount(kinds, minlength=self.config.kinds).tolist()
        groups = inputs.values.flatten(0, 1)[order].split(counts)
        projected = torch.cat([group @ weight for group, weight in zip(groups, self.value, strict=True)])
        return projected[order.argsort()].view(*inputs.kinds.shape, -1)

    def layers(self, inputs: Inputs) -> list[Tensor]:
        """Hidden states before each block and after the last: layers + 1 arrays float[n, L, width]."""
        context = self.context(torch.cat([inputs.workload, inputs.device], dim=-1))
        hidden = self.kind(inputs.kinds) + self._project(inputs) + context.unsqueeze(1)
        known = None
        if self.knowledge_base is not None:
            with torch.no_grad():
                known = self.knowledge_base.layers(inputs)
        states = []
        for i, norm in enumerate(self.norms):
            if known is not None:
                hidden = hidden + self.laterals[i](known[i])
            states.append(hidden)
            if i < len(self.blocks):
                hidden = hidden + self.blocks[i](norm(hidden))
        return states

    def pool(self, inputs: Inputs) -> Tensor:
        """What the heads read: float[n, 4 * width]."""
        hidden = self.norms[-1](self.layers(inputs)[-1])
        mask = (inputs.kinds != PADDING).unsqueeze(-1)  # (n, L, 1)
        length = mask.sum(1).clamp(min=1)  # (n, 1)
        mean = (hidden * mask).sum(1) / length
        high = hidden.masked_fill(~mask, -torch.inf).amax(1).nan_to_num(neginf=0.0)
        last = hidden.gather(1, (length - 1).unsqueeze(-1).expand(-1, 1, hidden.shape[-1])).squeeze(1)
        context = self.context(torch.cat([inputs.workload, inputs.device], dim=-1))
        return torch.cat([mean, high, last, context], dim=-1)

    def forward(self, inputs: Inputs) -> Tensor:
        """Scores of every head, float[n, heads]; higher is faster."""
        pooled = self.pool(inputs).expand(self.config.heads, -1, -1)
        hidden = F.silu(torch.baddbmm(self.head_bias, pooled, self.head_in))
        return torch.bmm(hidden, self.head_out).squeeze(-1).t()

    def embed(self, batch: FeatureBatch) -> np.ndarray:
        """Where the model sees each candidate: float32[n, 3 * width], the pooled steps."""
        return self._in_chunks(batch, lambda inputs: self.pool(inputs)[:, : 3 * self.config.width])


def build_model(config: CostModelConfig, seed: int, knowledge_base: CostModel | None = None) -> CostModel:
    """A model with weights that `seed` alone determines; torch's own generator stays as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return CostModel(config, knowledge_base)


def parameter_count(model: nn.Module) -> int:
    """Number of parameters, a knowledge base that the model reads included."""
    return sum(p.numel() for p in model.parameters())
