"""The table itself: what a person can do, with which key, when, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cubridge_tui.actions.conditions import (
    Condition,
    accepted,
    all_decided,
    always,
    answered,
    can_accept,
    can_begin,
    can_edit,
    can_open,
    can_redo,
    can_send,
    can_step,
    can_undo,
    can_word,
    changed_on_disk,
    deciding,
    edit_word,
    every,
    has_hunks,
    has_lifted,
    has_lowered,
    has_prompt,
    has_proposal,
    has_recipe,
    has_session,
    has_times,
    idle,
    in_store,
    not_accepted,
    not_running,
    on_hunk,
    running,
    searching,
    showable,
    some_deleted,
    some_open,
    some_topics,
    undo_word,
    waiting,
    why_word,
    writable,
)
from cubridge_tui.model.facts import Facts

EVERYWHERE = "everywhere"
START = "start"
ADAPTATION = "adaptation"
ACCEPT = "accept"
REPLAY = "replay"
MASK = "mask"
GPU = "gpu"
MODEL = "model"
HUNKS = "hunks"
COST = "cost"
SCREENS = (EVERYWHERE, START, ADAPTATION, HUNKS, ACCEPT, REPLAY, MASK, COST, GPU, MODEL)


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do. `keys`: the first is shown; every one is a plain key of any terminal.

    `footer` is the short word beside the key (empty: not in the footer); `now` says it for the
    present state, where that says more; lower `rank` first.
    """

    id: str
    keys: tuple[str, ...]
    words: str
    footer: str = ""
    screen: str = ADAPTATION
    group: str = ""
    when: Condition = field(default=always, repr=False)
    rank: int = 50
    now: Callable[[Facts], str] | None = field(default=None, repr=False)


_A = Action

ACTIONS: tuple[Action, ...] = (
    # everywhere
    _A("help", ("question_mark", "f1"), "Show every key and what it does here", "help",
       EVERYWHERE, "General", rank=90),
    _A("palette", ("ctrl+p", "colon"), "Find an action by its words", "", EVERYWHERE, "General"),
    _A("theme", ("T",), "Next theme", "", EVERYWHERE, "General"),
    _A("log", ("L",), "Show what the running and the last jobs said", "", EVERYWHERE, "General"),
    _A("quit", ("q", "ctrl+q"), "Quit; everything decided is saved already", "quit",
       EVERYWHERE, "General", rank=91),
    # start
    _A("open", ("enter",), "Open what the cursor is on", "open", START, "Start", can_open, 1),
    _A("begin", ("s",), "Start adapting the chosen kernel to the chosen spec", "start", START,
       "Start", can_begin, 2),
    _A("next-list", ("tab",), "Next list", "next list", START, "Start", rank=3),
    _A("previous-list", ("shift+tab",), "Previous list", "", START, "Start"),
    _A("replay", ("p",), "Replay the session under the cursor, read-only", "replay", START,
       "Start", has_session, 4),
    _A("find", ("slash",), "Find a kernel, a spec or a session by its words; again: the next one",
       "find", START, "Start", rank=5),
    _A("rename", ("e",), "Rename the session under the cursor", "rename", START, "Start",
       has_session, 6),
    _A("delete", ("x",), "Delete the session under the cursor; u restores it", "delete", START,
       "Start", has_session, 7),
    _A("restore", ("u",), "Restore the session that was deleted last", "restore", START, "Start",
       some_deleted, 8),
    _A("refresh", ("r",), "Look again at the store and the current folder", "", START, "Start"),
    # stepping
    _A("step", ("s",), "Next: run this stage's gate and move on", "next", ADAPTATION, "Stages",
       every(writable, idle, can_step), 1),
    _A("back", ("b",), "Back: look at the stage before, changing nothing", "", ADAPTATION,
       "Stages"),
    _A("redo-from", ("D",), "Do the shown stage again; what follows turns stale", "", ADAPTATION,
       "Stages", every(writable, idle)),
    _A("run", ("R",), "Run to the end, or to the first decision or failure", "run all", ADAPTATION,
       "Stages", every(writable, idle, can_step), 2),
    _A("cancel", ("ctrl+c",), "Cancel what is running", "cancel", ADAPTATION, "Stages",
       running, 0),
    _A("why", ("w", "enter"), "Why a gate failed: every pane goes to the op; else what every "
       "gate found or waits for", "why", ADAPTATION, "Stages", rank=3, now=why_word),
    _A("override", ("O",), "Override a failed gate in your name, with a reason", "", ADAPTATION,
       "Stages", every(writable, idle)),
    _A("accept-kernel", ("K",), "Accept the kernel: shows what and at which level; then package it",
       "accept kernel", ADAPTATION, "Stages", every(idle, can_accept), 4,
       lambda f: "package, commit" if f.accepted else "accept kernel"),
    _A("take-in", ("exclamation_mark",), "Take in what changed on disk", "take in", ADAPTATION,
       "Stages", every(writable, idle, changed_on_disk), 5),
    _A("rebase", ("V",), "Rebase onto another version of the kernel: shows what is carried over "
       "first", "", ADAPTATION, "Stages", every(writable, idle, in_store)),
    _A("ask-model", ("M",), "Ask a model for the edit, meanings of opaque ops, or a lowering: "
       "shows what would be sent, and where", "", ADAPTATION, "Stages",
       every(writable, has_lifted)),
    _A("gpu", ("v",), "Verify on a GPU: run, pack or import; results beside the rivals", "GPU",
       ADAPTATION, "Stages", has_lowered, 19),
    _A("fork", ("F",), "Go on in a copy of this session, also where another one writes it", "fork",
       ADAPTATION, "Stages", every(idle, in_store), 6, lambda f: "fork" if f.read_only else ""),
    _A("start-screen", ("B",), "Back to the start screen", "", ADAPTATION, "Stages"),
    # review
    _A("next-hunk", ("right_square_bracket",), "Next hunk", "hunks", ADAPTATION, "Review",
       has_hunks, 11),
    _A("previous-hunk", ("left_square_bracket",), "Previous hunk", "", ADAPTATION, "Review",
       has_hunks),
    _A("accept-hunk", ("a",), "Accept the hunk under the cursor", "accept", ADAPTATION, "Review",
       deciding, 12),
    _A("reject-hunk", ("x",), "Reject the hunk under the cursor", "reject", ADAPTATION, "Review",
       deciding, 13),
    _A("accept-origin", ("A",), "Accept every undecided hunk of this origin", "accept all",
       ADAPTATION, "Review", every(writable, idle, has_hunks, some_open, showable), 14),
    _A("undo", ("u",), "Undo the latest decision", "undo", ADAPTATION, "Review",
       every(writable, idle, can_undo), 13, undo_word),
    _A("redo", ("U", "ctrl+r"), "Redo the decision undone last", "", ADAPTATION, "Review",
       every(writable, idle, can_redo)),
    _A("hunks", ("o",), "Overview of all hunks: decide, filter, accept by clause", "overview",
       ADAPTATION, "Review", has_hunks, 15),
    _A("comment", ("c",), "Comment on the hunk; that decides nothing", "", ADAPTATION, "Review",
       every(writable, idle, on_hunk)),
    _A("edit", ("e",), "Edit the hunk's text here; on an opaque op, write its meaning", "edit",
       ADAPTATION, "Review", can_edit, 16, edit_word),
    _A("edit-outside", ("E",), "Edit the hunk's text, or the op's meaning, in $EDITOR", "",
       ADAPTATION, "Review", can_edit),
    _A("write", ("W",), "Write a proposal of your own: the whole target in $EDITOR", "", ADAPTATION,
       "Review", every(writable, idle, has_hunks, all_decided)),
    _A("view", ("d",), "Target and lowered as text, as hunks of ops, as lines", "diff", ADAPTATION,
       "Review", rank=17),
    _A("recipe", ("r",), "The recipe in words beside the spec's lines", "recipe", ADAPTATION,
       "Review", rank=18),
    _A("mask", ("m",), "Draw the mask over i and j with its tiles and failing rows", "mask",
       ADAPTATION, "Review", has_recipe, 19),
    _A("cost", ("C",), "Where the time goes: a block over time beside the expert's, units, rates",
       "cost", ADAPTATION, "Review", has_hunks, 19),
    _A("proposals", ("P",), "Read every proposal of this session, earlier ones too", "", ADAPTATION,
       "Review", has_proposal),
    _A("export-review", ("X",), "Write the session as one HTML page", "", ADAPTATION,
       "Review", has_proposal),
    # panes
    _A("next-pane", ("tab",), "Next pane", "", ADAPTATION, "Panes"),
    _A("previous-pane", ("shift+tab",), "Previous pane", "", ADAPTATION, "Panes"),
    _A("follow", ("f",), "The other panes follow the op under the cursor, or stay", "",
       ADAPTATION, "Panes", rank=20),
    _A("inspect", ("i",), "Inspect the op: type, memory, origin, clause, hunk", "inspect",
       ADAPTATION, "Panes", rank=21),
    _A("zoom", ("z",), "The focused pane alone, and back", "zoom", ADAPTATION, "Panes", rank=22),
    _A("wrap", ("t",), "Take long lines apart, or cut them", "", ADAPTATION, "Panes"),
    _A("all-panes", ("0",), "As many panes as the width allows", "", ADAPTATION, "Panes"),
    _A("pair-1", ("1",), "Source beside lifted", "", ADAPTATION, "Panes"),
    _A("pair-2", ("2",), "Lifted beside target", "", ADAPTATION, "Panes"),
    _A("pair-3", ("3",), "Target beside lowered", "", ADAPTATION, "Panes"),
    _A("pair-4", ("4",), "Source beside lowered", "", ADAPTATION, "Panes"),
    _A("search", ("slash",), "Search in all panes while typing, with counts", "search", ADAPTATION,
       "Panes", rank=23),
    _A("next-match", ("n",), "Next match", "", ADAPTATION, "Panes", searching),
    _A("previous-match", ("N",), "Previous match", "", ADAPTATION, "Panes", searching),
    _A("go-to-line", ("g",), "Go to a line", "", ADAPTATION, "Panes"),
    _A("copy", ("y",), "Copy the selection, or the line", "copy", ADAPTATION, "Panes", rank=24),
    _A("copy-hunk", ("Y",), "Copy the hunk's new text", "", ADAPTATION, "Panes", on_hunk),
    # all hunks
    _A("hunks-open", ("enter",), "To the hunk's place in the panes", "go there", HUNKS, "Hunks",
       on_hunk, 1),
    _A("hunks-accept", ("a",), "Accept the hunk under the cursor", "accept", HUNKS, "Hunks",
       deciding, 2),
    _A("hunks-reject", ("x",), "Reject the hunk under the cursor", "reject", HUNKS, "Hunks",
       deciding, 3),
    _A("hunks-accept-shown", ("A",), "Accept every undecided hunk that is shown", "accept shown",
       HUNKS, "Hunks", every(writable, idle, some_open, showable), 4),
    _A("hunks-filter", ("slash",), "Show only hunks with some words: a clause, a name, a decision",
       "filter", HUNKS, "Hunks", rank=5),
    _A("hunks-undo", ("u",), "Undo the latest decision", "undo", HUNKS, "Hunks",
       every(writable, idle, can_undo), 6, undo_word),
    _A("hunks-next-pane", ("tab",), "To the hunk's text, or back to the list", "", HUNKS, "Hunks"),
    _A("hunks-close", ("escape", "o"), "Back to the panes", "back", HUNKS, "Hunks", rank=80),
    # accepting
    _A("confirm", ("A",), "Accept at the level shown", "accept", ACCEPT, "Accept",
       every(writable, idle, can_accept, not_accepted), 1),
    _A("write-package", ("w",), "Write the kernel package to a folder", "package", ACCEPT, "Accept",
       accepted, 2),
    _A("commit-to-repository", ("C",), "Commit into your own repository: shows the diff first",
       "commit", ACCEPT, "Accept", accepted, 3),
    _A("close", ("escape",), "Back to the panes", "back", ACCEPT, "Accept", rank=80),
    # replay
    _A("replay-step", ("s",), "The next step", "step", REPLAY, "Replay", rank=1),
    _A("replay-back", ("b",), "One step back", "back", REPLAY, "Replay", rank=2),
    _A("replay-play", ("space",), "Play, or stop", "play", REPLAY, "Replay", rank=3),
    _A("replay-faster", ("plus",), "Play faster", "", REPLAY, "Replay"),
    _A("replay-slower", ("minus",), "Play slower", "", REPLAY, "Replay"),
    _A("replay-next-decision", ("right_square_bracket",), "To the next decision", "decisions",
       REPLAY, "Replay", rank=4),
    _A("replay-previous-decision", ("left_square_bracket",), "To the decision before", "", REPLAY,
       "Replay"),
    _A("replay-next-stage", ("right_curly_bracket",), "To the next stage", "stages", REPLAY,
       "Replay", rank=5),
    _A("replay-previous-stage", ("left_curly_bracket",), "To the stage before", "", REPLAY,
       "Replay"),
    _A("replay-fork", ("c",), "Continue from here: a new session that begins with this history",
       "continue", REPLAY, "Replay", rank=6),
    _A("replay-follow", ("0",), "Show the text that each step changes", "", REPLAY, "Panes"),
    _A("replay-source", ("1",), "Show the source", "", REPLAY, "Panes"),
    _A("replay-lifted", ("2",), "Show the lifted IR", "", REPLAY, "Panes"),
    _A("replay-target", ("3",), "Show the target IR", "", REPLAY, "Panes"),
    _A("replay-lowered", ("4",), "Show the lowered source", "", REPLAY, "Panes"),
    _A("replay-next-pane", ("tab",), "Next pane", "", REPLAY, "Panes"),
    _A("replay-previous-pane", ("shift+tab",), "Previous pane", "", REPLAY, "Panes"),
    _A("replay-close", ("escape",), "Leave the replay", "leave", REPLAY, "Replay", rank=80),
    # the mask
    _A("mask-next-wrong", ("n",), "To the next row that fails", "failing rows", MASK, "Mask",
       rank=1),
    _A("mask-previous-wrong", ("N",), "To the failing row before", "", MASK, "Mask"),
    _A("mask-view", ("v",), "Pairs (i, j), or one mark for a tile", "pairs/tiles", MASK, "Mask",
       rank=2),
    _A("mask-sizes", ("s",), "Other sizes of the deck", "sizes", MASK, "Mask", rank=3),
    _A("mask-type-sizes", ("S",), "Type Nq and Nk", "", MASK, "Mask"),
    _A("mask-values", ("e",), "Type the values of the tables and numbers that the mask reads",
       "values", MASK, "Mask", rank=5),
    _A("mask-head", ("H",), "Next head", "head", MASK, "Mask", rank=4),
    _A("mask-batch", ("b",), "Next batch", "", MASK, "Mask"),
    _A("mask-go-to", ("g",), "Go to a pair i, j", "go to", MASK, "Mask", rank=5),
    _A("mask-close", ("escape",), "Back to the panes", "back", MASK, "Mask", rank=80),
    # where the time goes
    _A("cost-closer", ("plus",), "Fewer cycles to a cell", "closer", COST, "Cost", rank=1),
    _A("cost-wider", ("minus",), "More cycles to a cell", "wider", COST, "Cost", rank=2),
    _A("cost-next-pane", ("tab",), "To the bars, or back to the timeline", "bars", COST, "Cost",
       rank=3),
    _A("cost-close", ("escape",), "Back to the panes", "back", COST, "Cost", rank=80),
    # GPU verification
    _A("gpu-run", ("r", "enter"), "Run the job with the runner under the cursor", "run", GPU, "GPU",
       every(writable, idle), 1),
    _A("gpu-cancel", ("ctrl+c",), "Cancel what is running", "cancel", GPU, "GPU", running, 0),
    _A("gpu-edit", ("e",), "Name the ssh host, or the command", "edit", GPU, "GPU", idle, 2),
    _A("gpu-pack", ("p",), "Pack the job into a folder or a .tar, to carry it", "pack", GPU, "GPU",
       idle, 3),
    _A("gpu-import", ("i",), "Import the result of a job that was carried", "import", GPU, "GPU",
       every(writable, idle), 4),
    _A("gpu-bench", ("t",), "Time it beside the rivals too, or verify only", "times", GPU, "GPU",
       idle, 5),
    _A("gpu-export", ("x",), "Write the bars to a PNG or SVG file", "export", GPU, "GPU",
       has_times, 6),
    _A("gpu-next-pane", ("tab",), "Next pane", "", GPU, "GPU"),
    _A("gpu-previous-pane", ("shift+tab",), "Previous pane", "", GPU, "GPU"),
    _A("gpu-close", ("escape",), "Back to the panes", "back", GPU, "GPU", rank=80),
    # a model
    _A("model-send", ("s",), "Send what is shown; then, let the next round go", "send", MODEL,
       "Model", every(writable, can_send), 1,
       lambda f: {"waiting": "next round", "done": "ask again"}.get(f.asking, "send")),
    _A("model-cancel", ("ctrl+c",), "Cancel at once; answers that came are kept", "cancel", MODEL,
       "Model", running, 0),
    _A("model-words", ("t",), "Type a line for the model: for the prompt, or for the next round",
       "a line", MODEL, "Model", can_word, 2),
    _A("model-stop", ("x",), "No more rounds: the best answer becomes the proposal", "stop here",
       MODEL, "Model", waiting, 3),
    _A("model-topic", ("w",), "Ask for something else: a step of meanings, the edit, a lowering",
       "ask for", MODEL, "Model", some_topics, 4),
    _A("model-rounds", ("n",), "How many repairs, and how many answers from scratch", "rounds",
       MODEL, "Model", not_running, 4),
    _A("model-server", ("m",), "Another server or model", "server", MODEL, "Model", not_running, 5),
    _A("model-prompt", ("p",), "Read the whole prompt, or what would be sent", "prompt", MODEL,
       "Model", not_running, 6),
    _A("model-edit", ("e",), "Edit the prompt in $EDITOR; it is sent only by s", "edit prompt",
       MODEL, "Model", has_prompt, 7),
    _A("model-look", ("d",), "An answer as text, as edit, its verdict, its prompt", "look", MODEL,
       "Model", answered, 8),
    _A("model-beside", ("o",), "Hold the answer under the cursor beside the others, or let it go",
       "beside", MODEL, "Model", answered, 9),
    _A("model-next-pane", ("tab",), "Next pane", "", MODEL, "Model"),
    _A("model-previous-pane", ("shift+tab",), "Previous pane", "", MODEL, "Model"),
    _A("model-close", ("escape",), "Back to the panes; a run goes on, M shows it again", "back",
       MODEL, "Model", rank=80),
)  # fmt: skip
