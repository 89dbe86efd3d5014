"""Work that is handed out while blocks run: a claim, and a word that tells it on."""

from __future__ import annotations

from engine.cuir.ops.spec import Effect, Proxy, RuleContext, Who, mismatch, nothing, op
from engine.cuir.types import GmemTileType, Scalar, Type

I32 = Scalar("i32")


def _claim(context: RuleContext, src: Type, limit: Type) -> Type:
    if isinstance(src, GmemTileType):
        if not src.vector:
            mismatch(
                f"claim takes a word of a vector, and {src.view.field} gives a tile of rows: index "
                "all but its last dimension"
            )
        if src.view.dtype != "i32":
            mismatch(f"claim takes an i32, and {src.view.field} holds {src.view.dtype}")
    if isinstance(limit, Scalar) and limit.value is not None and limit.value < 1:
        mismatch(f"claim counts to a limit above 0, not to {limit.value}", "bad_value")
    return I32


def _fetch(context: RuleContext, src: Type) -> Type:
    return I32


OPS = (
    op(
        "claim(src: tile, limit: int)", "work", rule=_claim, execute="work:claim",
        who=Who.THREAD, effects=(Effect.READS_GLOBAL, Effect.WRITES_GLOBAL),
        kind="i32", cost="claim", lift="claim({src:region}, {limit:i32})",
        lower="claim({src}, {limit})",
        doc="Takes the number that the first word of an i32 vector holds and leaves the next one, "
            "0 after `limit` - 1, in one step that no other claim comes between: blocks that claim "
            "from one word get different numbers. Together the claims of a launch leave the word "
            "as the launch found it, and nothing else of the launch touches it. A claim orders "
            "nothing.",
    ),
    op(
        "post(dst: slot, value: int)", "work", rule=nothing, execute="work:post",
        who=Who.THREAD, proxy=Proxy.GENERIC, effects=(Effect.WRITES_SHARED,),
        cost="nothing", lift="post({dst:word}, {value:i32})", lower="post({dst}, {value})",
        doc="A whole number to a shared word; others may fetch it after a barrier.",
    ),
    op(
        "fetch(src: slot)", "work", rule=_fetch, execute="work:fetch", who=Who.PART,
        proxy=Proxy.GENERIC, effects=(Effect.READS_SHARED,),
        kind="i32", cost="fetch", lift="fetch({src:word})", lower="fetch({src})",
        doc="The number that a shared word holds, for each thread that asks.",
    ),
)  # fmt: skip
