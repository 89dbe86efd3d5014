"""The kernel in the place of a library's own attention: what it asks for is done or refused."""

from __future__ import annotations

import math
from typing import Any

import torch

from ._args import AXES, in_order
from ._expr import evaluate
from ._op import Operator

# What transformers hands on to attention that changes nothing there. Positions change the mask,
# which `Host.mask` compares.
_IDLE = frozenset((
    "position_ids", "cache_position", "position_embeddings", "past_key_values", "use_cache",
    "logits_to_keep", "num_items_in_batch", "output_hidden_states", "output_router_logits",
    "return_dict", "deterministic", "output_attentions",  # false: weights are refused before
))  # fmt: skip
_OTHER_MASK = "has the mask of its spec, and the model asks for another"


class Refused(ValueError):
    """What a library asked for and the kernel has not."""


class Host:
    """The operator as libraries call attention: q, k and v as [B, heads, rows, columns]."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.name = operator.info["name"]
        self.facts: dict[str, Any] = operator.info["host"]
        self.causal: bool = self.facts["causal"]
        self.window: int | None = self.facts["window"]
        self.documents: list[str] | None = self.facts["documents"]

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
        scaling: float | None = None, softcap: float | None = None,
        parts: torch.Tensor | None = None, documents: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """O as [B, Hq, Nq, Dv]. `parts` are the keys of each batch row, see `Operator.padded`;
        `documents` a number for each key [B, Nk], in kernels that tell documents apart."""
        given = self._given(q, k, v, scaling, softcap)
        if self.documents is not None:
            if documents is None:
                documents = q.new_zeros((q.shape[0], k.shape[2]), dtype=torch.int32)
            elif tuple(documents.shape) != (q.shape[0], k.shape[2]):
                raise Refused(
                    f"{self.name} needs a document number for each key, "
                    f"{[q.shape[0], k.shape[2]]}, not {list(documents.shape)}"
                )
            of_keys = documents.to(torch.int32)
            given |= dict(zip(self.documents, (of_keys[:, -q.shape[2] :], of_keys), strict=True))
        elif documents is not None:
            raise Refused(f"{self.name} does not tell documents apart")
        if parts is None:
            out = self.operator.call_named(given)["O"]
        else:
            values = (given.get(i["name"]) for i in self.operator.inputs)
            out = self.operator.op_padded(*values, parts)
        return self._in_order(out)

    def with_lse(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`attend`, and the rows' log-sum-exp [B, Hq, Nq]."""
        made = self.operator.call_named(self._given(q, k, v, scaling, None))
        return self._in_order(made["O"]), made["LSE"]

    def _in_order(self, out: torch.Tensor) -> torch.Tensor:
        return in_order(out, self.operator.spec.output_dims)

    def _given(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float | None,
        softcap: float | None,
    ) -> dict[str, Any]:  # fmt: skip
        """q, k and v by their names and in the layout of the spec; refuses another score."""
        scale = 1 / math.sqrt(q.shape[-1]) if scaling is None else scaling
        asked = other_score(self.facts["score"], scale, softcap or 0.0, q.shape[-1])
        if asked:
            raise Refused(f"{self.name} {asked}")
        given: dict[str, Any] = {}
        for item in self.operator.inputs:
            if item["role"] != "extra":
                order = [
                    next(n for n, names in enumerate(AXES) if d in names) for d in item["dims"]
                ]
                given[item["name"]] = {"q": q, "k": k, "v": v}[item["role"]].permute(order)
        return given

    # --- transformers ----------------------------------------------------------------------------

    def transformers(
        self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        attention_mask: torch.Tensor | None, dropout: float = 0.0, scaling: float | None = None,
        is_causal: bool | None = None, sliding_window: int | None = None,
        softcap: float | None = None, document_ids: torch.Tensor | None = None, **options: Any,
    ) -> tuple[torch.Tensor, None]:  # fmt: skip
        """An attention function of transformers; `attention_mask` is what `mask` made."""
        if dropout:
            raise Refused(f"{self.name} has no dropout: call model.eval()")
        if options.get("output_attentions"):
            raise Refused(f"{self.name} does not give attention weights (output_attentions)")
        for name, option in options.items():
            if option is not None and name not in _IDLE:
                raise Refused(f"{self.name} does not take {name}, which the model's attention has")
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        self._same_mask(causal, sliding_window, query.shape[2], key.shape[2])
        if attention_mask is not None and attention_mask.dim() != 2:
            raise Refused(
                f"{self.name} takes no mask of all pairs {list(attention_mask.shape)}: its own is "
                "in the kernel, and padding is given as [batch, keys]"
            )
        parts = None
        if self.documents is None:
            parts = attention_mask
        elif document_ids is None:
            document_ids = attention_mask
        elif attention_mask is not None:  # padding is a document of its own, before the others
            numbers = document_ids - document_ids.min() + 1
            document_ids = torch.where(attention_mask > 0, numbers, 0)
        out = self.attend(query, key, value, scaling, softcap, parts, document_ids)
        return out.transpose(1, 2), None

    def mask(
        self, batch_size: int, q_length: int, kv_length: int, q_offset: int = 0, kv_offset: int = 0,
        mask_function: Any = None, attention_mask: torch.Tensor | None = None,
        local_size: int | None = None, use_vmap: bool = False,
        device: torch.device | str = "cpu", **options: Any,
    ) -> torch.Tensor | None:  # fmt: skip
        """A mask function of transformers: what the kernel needs to know of padding, the parts of
        the keys [B, 2] or documents [B, Nk]; None where there is nothing to know."""
        if isinstance(q_offset, torch.Tensor) or q_offset + q_length != kv_offset + kv_length:
            raise Refused(
                f"{self.name} needs the queries to be the last of the keys, which a static cache "
                "does not give: use the dynamic one"
            )
        self._same_window(local_size, kv_length)
        kept = None
        if attention_mask is not None:
            kept = attention_mask[:, -kv_length:].to(torch.bool)
        numbers = same = None
        compiling = torch.compiler.is_compiling()
        if compiling or not self._known(mask_function, local_size):
            if use_vmap:
                raise Refused(f"{self.name} {_OTHER_MASK}")
            places = torch.arange(kv_offset, kv_offset + kv_length, device=device)
            first = torch.arange(batch_size, device=device)[:, None]
            numbers, same = self._compared(mask_function, first, places, q_length, local_size)
            if not compiling and not bool(same):
                raise Refused(f"{self.name} {_OTHER_MASK}")
        if not compiling and (kept is None or bool(kept.all())):
            kept = None
        if self.documents is not None:
            if compiling and same is not None:
                torch._assert_async(same, f"{self.name} {_OTHER_MASK}")
            if kept is None:
                return None if numbers is None else numbers + 1
            return kept.to(torch.int32) * (1 if numbers is None else numbers + 1)
        if kept is None and not compiling:
            return None
        if kept is None:
            kept = torch.ones(batch_size, kv_length, dtype=torch.bool, device=device)
        whole = kept.to(torch.int64)
        begin, count = whole.argmax(-1), whole.sum(-1)
        end = torch.where(count > 0, kv_length - whole.flip(-1).argmax(-1), begin)
        # What is refused where the parts are read: a mask with holes, and another mask.
        begin = torch.where(end - begin == count, begin, -1)
        if same is not None:
            begin = torch.where(same, begin, -2)
        return torch.stack([begin, end], -1).cpu()

    def _known(self, mask_function: Any, local_size: int | None) -> bool:
        """Whether a mask function is the kernel's own by its name alone; of windows
        nothing is asked."""
        from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

        plain = causal_mask_function if self.causal else bidirectional_mask_function
        if mask_function is None or mask_function is plain:
            return True
        parts = [cell.cell_contents for cell in mask_function.__closure__ or ()]
        inner = parts[0] if len(parts) == 1 and isinstance(parts[0], tuple) else ()
        return self.causal and local_size is not None and len(inner) == 2 and inner[1] is plain

    def _compared(
        self, mask_function: Any, batch: torch.Tensor, keys: torch.Tensor, q_length: int,
        local_size: int | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """The documents [B, Nk] that a mask tells apart, and whether it is the kernel's mask, at
        all pairs beside a boundary of one and at some others."""
        keys = keys[None]
        rows = keys[:, keys.shape[1] - q_length :]

        def asked(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(mask_function(batch, 0, q, k)).expand(batch.shape[0], q.shape[1])

        apart = ~asked(keys, (keys - 1).clamp(min=0)) & (keys > keys[:, :1])
        numbers = apart.to(torch.int32).cumsum(-1, dtype=torch.int32)
        same = torch.ones((), dtype=torch.bool, device=keys.device)
        low, high = keys[:, :1], keys[:, -1:]
        windows = [n for n in (self.window, local_size) if n is not None]
        for shift in (0, 1, -1, *(d for n in windows for d in (n - 1, n))):
            k = torch.minimum(torch.maximum(rows - shift, low), high)
            same = same & self._as_ours(asked(rows, k), rows, k, numbers, low)
        for k in (low.expand_as(rows), low + (rows * 7919) % keys.shape[1]):
            same = same & self._as_ours(asked(rows, k), rows, k, numbers, low)
        return numbers, same

    def _as_ours(
        self, asked: torch.Tensor, q: torch.Tensor, k: torch.Tensor, numbers: torch.Tensor,
        low: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        ours = torch.ones_like(asked)
        if self.causal:
            ours = ours & (k <= q)
        if self.window is not None:
            ours = ours & (k > q - self.window)
        if self.documents is not None:
            of = [numbers.gather(1, (n - low).expand_as(asked)) for n in (q, k)]
            ours = ours & (of[0] == of[1])
        return (asked == ours).all()

    def _same_mask(self, causal: bool, window: int | None, rows: int, keys: int) -> None:
        """Refused where a library's mask is another than the kernel's."""
        if causal != self.causal and rows > 1:
            kinds = {True: "causal", False: "over all keys"}
            raise Refused(f"{self.name} is {kinds[self.causal]}, and the model's attention is "
                          f"{kinds[causal]}")  # fmt: skip
        self._same_window(window, keys)

    def _same_window(self, window: int | None, keys: int) -> None:
        if window is not None and keys > window and window != self.window:
            raise Refused(f"{self.name} has no window of {window} keys, and there are {keys}")
        if window is None and self.window is not None and keys > self.window:
            raise Refused(f"{self.name} has a window of {self.window} keys, and the model has none")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def other_score(text: str, scale: float, softcap: float, columns: int) -> str:
    """What a library's score is and the kernel's is not, as the end of a sentence; "" where they
    are the same. `text` is the kernel's score over the dot product x, its tables left out."""
    names = dict.fromkeys(("b", "h", "i", "j", "B", "Hq", "Hkv", "Nq", "Nk"), 1)
    names |= {"D": columns, "Dv": columns}
    for x in (-300.0, -7.0, 0.5, 40.0, 900.0):
        wanted = x * scale
        if softcap:
            wanted = softcap * math.tanh(wanted / softcap)
        found = float(evaluate(text, {**names, "x": x}))
        if not math.isclose(found, wanted, rel_tol=1e-5):
            cap = f", capped at {softcap:g}" if softcap else ""
            return (f"computes the score {text}, and the model asks for x * {scale:.6g}{cap} "
                    f"(D = {columns})")  # fmt: skip
    return ""


def as_attention_interface(operator: Operator, name: str) -> str:
    """Register the kernel with transformers as `attn_implementation=name`; the name.

    ImportError without transformers 5 or newer.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    host = Host(operator)
    AttentionInterface.register(name, host.transformers)
    AttentionMaskInterface.register(name, host.mask)
    return name
