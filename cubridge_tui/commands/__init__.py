"""One module per command of `cubridge`: `configure(parser)` and `run(args) -> int`."""

from __future__ import annotations

# name -> (module, what it does in one line)
COMMANDS: dict[str, tuple[str, str]] = {
    "adapt": ("cubridge_tui.commands.adapt", "carry a kernel over to a spec, through every gate"),
    "lift": ("cubridge_tui.commands.lift", "the CuIR of a kernel, and what stayed opaque"),
    "recipe": ("cubridge_tui.commands.recipe", "what a spec asks for, in plain words"),
    "propose": ("cubridge_tui.commands.propose", "hunks for a session: by rules, you, an agent"),
    "check": ("cubridge_tui.commands.check", "check CuIR, a session, or anyone's CUDA kernel"),
    "import": ("cubridge_tui.commands.bring", "a kernel of others as a folder, after its G1"),
    "cost": ("cubridge_tui.commands.cost", "what a kernel would take on a card, by its CuIR"),
    "lower": ("cubridge_tui.commands.lower", "write a session's target into the source; run G3"),
    "verify": ("cubridge_tui.commands.verify", "run a session's G4 on a GPU, or pack its job"),
    "gpu": ("cubridge_tui.commands.gpu", "pack GPU jobs, import and show what they found"),
    "bench": ("cubridge_tui.commands.bench", "a kernel's times beside the best rivals"),
    "mcp": ("cubridge_tui.commands.mcp", "let a coding agent work on sessions, over MCP"),
    "rebase": ("cubridge_tui.commands.rebase", "a session onto a new version of its kernel"),
    "status": ("cubridge_tui.commands.status", "which accepted kernels of a repository are stale"),
    "sessions": ("cubridge_tui.commands.sessions", "list or show what is in the store"),
    "export": ("cubridge_tui.commands.export", "the accepted kernel as a package of its own"),
    "replay": ("cubridge_tui.commands.replay", "a session's history; --check makes it again"),
    "kernels": ("cubridge_tui.commands.kernels", "the expert kernels that come with CuBridge"),
    "specs": ("cubridge_tui.commands.specs", "the example specs that come with CuBridge"),
    "config": ("cubridge_tui.commands.config", "the app's settings and keys, and which file wins"),
    "doctor": ("cubridge_tui.commands.doctor", "what this machine has and what it lacks"),
}
