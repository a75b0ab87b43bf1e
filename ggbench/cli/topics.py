"""What `ggbench help TOPIC` explains that belongs to no single command."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ggbench.errors import ExitCode

if TYPE_CHECKING:
    from ggbench.show.document import Document

EXIT_CODES = (
    (ExitCode.DONE, "done"),
    (ExitCode.UNEXPECTED, "unexpected; or a limit of compare was exceeded"),
    (ExitCode.USAGE, "the command line, or a config file, is wrong"),
    (ExitCode.DOES_NOT_FIT, "it does not fit: memory, or room on the disk"),
    (ExitCode.NETWORK, "network or Hub, including a repo that does not exist"),
    (ExitCode.BAD_FILE, "a bad or unsupported file"),
    (ExitCode.ENGINE_FAILED, "the engine (llama.cpp, Transformers or a server) failed"),
    (ExitCode.INTERRUPTED, "interrupted, or a question answered with no"),
    (ExitCode.PIPE_CLOSED, "the program that reads the output ended first, as in ggbench models | head"),
)
"""What each exit code means."""

Rows: TypeAlias = "Sequence[tuple[str, str]]"
"""Names on the left, meanings on the right."""


class Section(msgspec.Struct, frozen=True):
    """A heading with paragraphs, rows, or both."""

    heading: str
    text: str = ""
    """Paragraphs, with empty lines between."""
    rows: Rows = ()


class Topic(msgspec.Struct, frozen=True):
    """A page of help."""

    summary: str
    """For the list of topics, in a few words."""
    sections: Callable[[], Sequence[Section]]
    """Made when the page is shown, as some are generated."""


def _numbers() -> Sequence[Section]:
    from ggbench.show.columns import COLUMNS
    from ggbench.show.glossary import FORMULA, PROVENANCE, TERMS, terms

    explained = {term.name for term in TERMS.values()}
    columns = [
        (each.header, f"{each.doc.rstrip('.')} [{each.unit}]." if each.unit else each.doc)
        for each in COLUMNS.values()
        if each.header not in explained
    ]
    return (
        Section(
            "The model of latency",
            f"""
            {FORMULA}.

            A token costs two readings of memory: all weights that it uses (B, at every position the same) and the KV
            cache of the tokens before it (1/W for each). The limit of both is the memory's bandwidth: B at the limit is
            the bytes of the weights over the bandwidth, W at the limit the bandwidth over the KV bytes of one position.
            W% and B% compare with that, and are no better than the bandwidth. On a CPU it is measured once, by the
            fastest of several reads, and kept; on a GPU it is bus width x memory clock from NVML; --bandwidth takes
            yours instead.
            """,
        ),
        Section("Numbers and marks", rows=terms()),
        Section("Where a number comes from", rows=PROVENANCE),
        Section("Further columns of tables", rows=columns),
        Section(
            "Units",
            """
            Sizes in GiB are 2^30 bytes and GB 10^9; on the command line 6G is GiB, and bits (6Gb) are refused. Tokens
            are written as 16384, 16,384, 16_384 or 16k; k is 1024, and what it stands for is printed on stderr. Unknown
            is —, in JSON null.
            """,
        ),
    )


def _names() -> Sequence[Section]:
    return (
        Section(
            "MODEL",
            rows=(
                ("~/models/x-q4_k_m.gguf", "A file."),
                ("~/models", "A folder of files."),
                ("org/name, hf:org/name", "A repo of the Hugging Face Hub; org/name@revision names a revision."),
                ("qwen2.5-7b", "A model of the catalog, by its id: its files are its repo's. See ggbench models."),
                ("synth:qwen2.5-7b", "Twins of a catalog model, made here without a network."),
                ("twin:org/name", "Twins of published files, from their real headers."),
                ("tf:org/name, tf:FOLDER", "A checkpoint of Transformers: config.json and safetensors."),
                ("synth-tf:qwen2.5-7b", "A checkpoint of a catalog model, made here with random weights."),
                ("http://127.0.0.1:8080", "A server, with or without /v1; QUANT is the name of one of its models."),
            ),
        ),
        Section(
            "QUANT",
            """
            A name in any case (q4_k_m, UD-Q4_K_XL) or a file's name; MODEL:QUANT also works. Without QUANT it is every
            one that there is, and of a checkpoint the one that it is stored as. If several files answer, the error
            lists them with their sizes. decode and prefill take one quant, maxctx and pull those that you name; inspect
            takes a file or a folder, synth an id of the catalog. A page of the Hub pasted from a browser means its
            repo, and its file.
            """,
        ),
        Section(
            "Twins",
            """
            A twin is a file of a model's true shape and tensor types with no trained weights, written by llama.cpp's
            own quantizer. Memory and speed do not depend on the values, so they are real; the text is not, and a twin
            has no quality. In a mixture of experts the router decides which experts are read, and a twin's may read
            others.
            """,
        ),
        Section(
            "Downloads",
            """
            bench, decode, prefill, speed, quality and maxctx download what is missing: more than 1 GB in all only after
            a question, or outside a terminal with --yes; with --no-download nothing. Files go into Hugging Face's own
            cache, where hf cache ls and llama.cpp's -hf find them. plan, pick and forecast fetch headers alone.
            """,
        ),
    )


def _defaults() -> Sequence[Section]:
    from ggbench.engines.llama.defaults import DIFFERENCES

    return (
        Section(
            "Defaults",
            """
            Every default is that of llama-server -m FILE -c N -np 1, because that is what people run. What differs:
            """,
            tuple(DIFFERENCES.items()),
        ),
    )


def _servers() -> Sequence[Section]:
    return (
        Section(
            "Measuring a server",
            """
            MODEL may be the URL of llama-server, Ollama, vLLM, LM Studio, TGI, llama-cpp-python or another
            OpenAI-compatible server, which is recognized by its answers, never by its port. decode and prefill measure
            one of its models, which needs a name only where there are several; speed --batch sends as many requests at
            once; bench measures each model that it offers. maxctx, quality, tune, plan, pick, forecast and pull need
            the model's file. In the TUI, a URL typed into the filter of the Library's models adds a server.
            """,
        ),
        Section(
            "Whose clock",
            """
            llama-server times each token itself, its sampling included, and the network adds nothing; of other servers
            a token's time is that between two arrivals here. --clock client takes the arrivals of llama-server too. The
            network is shown apart: the time to the first byte of an empty request, and what arrival adds to the
            server's own time of a token. Rates of concurrent requests are always the client's: of all together from
            sending the first request to the last token, a decode's while all of them generate, and of each request by
            itself.

            Tokens that come several at once are counted and never taken apart: a few of them, such as characters of
            several tokens, are left out of W, B and percentiles and count for the speed; where they are common, as with
            speculative decoding, neighbours are timed in blocks of 16 tokens or more, and there are no percentiles.
            Drafted and accepted tokens are shown where the server reports them.
            """,
        ),
        Section(
            "What is asked",
            """
            Prompts are token ids where the server takes them, the same that ggbench's own engine reads; else common
            words, which one request counts. Requests ask for an exact number of tokens past any end of text, and for no
            cached prompt. What the server did not do is listed under `not as asked`: a prompt of another length, tokens
            from a cache, an early end. Ollama, LM Studio and TGI have no way to generate past the end of a text.

            Nothing is known of a server's memory unless it says so, and nothing is guessed; a quant that only the
            model's name claims is marked.
            """,
        ),
        Section(
            "Keys and failures",
            """
            --api-key-env names the environment variable with the API key, which goes into a header and nowhere else.
            TLS is verified, and a redirect to another host is refused. A server that dies, is silent beyond --timeout
            or ends early is a run with its reason and with what was measured until then; Ctrl-C closes the request, so
            that the server stops.
            """,
        ),
    )


def _scripts() -> Sequence[Section]:
    return (
        Section(
            "Output",
            """
            Data goes to stdout, everything else to stderr. --json gives one document with a `schema`; --quiet leaves
            stderr empty unless something fails; NO_COLOR is heeded. An error is one line saying what and one saying
            what to do; GGBENCH_DEBUG=1 shows the traceback.

            `ggbench help schema` lists the documents, and says what a program can rely on. n_batch and n_ubatch of a
            row are what llama.cpp made of them; `config` has what was asked for.
            """,
        ),
        Section("Exit codes", rows=tuple((str(int(code)), text) for code, text in EXIT_CODES)),
        Section(
            "Signals",
            """
            SIGTERM and SIGHUP, as of a batch system or a terminal that closes, end a command as Ctrl-C does; under
            nohup it goes on. A run that is killed keeps what it had measured.
            """,
        ),
        Section(
            "Files",
            """
            Results live in one SQLite file in the data folder (~/.local/share/ggbench/results.sqlite on Linux), twins
            and the measured bandwidth in the cache folder (~/.cache/ggbench), your own models in the config folder
            (~/.config/ggbench/models.toml). A damaged results file is moved aside, never deleted; one that cannot be
            written can still be read. Nothing listens on a socket but cluster serve.
            """,
        ),
        Section(
            "Network",
            """
            With --offline, or HF_HUB_OFFLINE=1, nothing asks the network: files on this disk, kept listings and
            headers, and twins of the catalog all work. HF_ENDPOINT, HF_HOME, HF_HUB_CACHE and HF_TOKEN are heeded as
            huggingface_hub does.
            """,
        ),
        Section(
            "Shell completion",
            """
            Tab completes commands, options, models (of the catalog, downloaded, or servers that were added), their
            quants, the numbers of runs, and GPUs. Add the line of your shell to its start-up file:
            """,
            (
                ("bash", 'eval "$(_GGBENCH_COMPLETE=bash_source ggbench)"  in ~/.bashrc'),
                ("zsh", 'eval "$(_GGBENCH_COMPLETE=zsh_source ggbench)"  in ~/.zshrc'),
                ("fish", "_GGBENCH_COMPLETE=fish_source ggbench | source  in ~/.config/fish/config.fish"),
            ),
        ),
    )


def _schema() -> Sequence[Section]:
    return (
        Section(
            "What to rely on",
            """
            Every command that prints data has --json: one document on stdout, everything else on stderr. Its first key
            names its schema, `ggbench.plan/1`, and `ggbench help schema plan` prints that, as JSON Schema 2020-12: each
            field with its type, its unit and what null means.

            A name keeps its meaning. A field may be added at any time, so ignore names that you do not know; if one had
            to change or go, the number after the slash would rise. Every key is there, in every row; the few that
            depend on an option are not in `required`. Null is unknown, or does not apply; it is never zero. A number
            that JSON does not have, such as infinity, is null.

            Numbers are not rounded. The unit is in the name: _bytes, _ms, _ns, _s, tok_s, bytes_per_s. A share is 0 to
            1. `_ci95` is the 95 % interval of the field before it, [low, high]; an end that is null is unbounded. Times
            of day are UTC, ISO 8601. Text comes from files and servers that nobody has checked: control characters are
            escaped; escape for HTML and shells yourself.

            A measured quant has the same names in every document. A failed one is a row too: its `outcome` is not
            `completed`, and `reason` says why. The exit code says how the command ended, also where a document was
            printed: `ggbench help scripts`.
            """,
        ),
        Section(
            "Examples",
            rows=(
                ("what fits", "ggbench plan qwen2.5-7b --json | jq -r '.rows[] | select(.fits) | .quant'"),
                ("a limit", "ggbench compare 12 34 --fail-if-slower 5% --json | jq '.checks[] | {metric, state}'"),
                ("validate", "ggbench help schema plan > s.json; check-jsonschema --schemafile s.json plan.json"),
            ),
        ),
        Section(
            "Documents",
            rows=tuple((name, f"ggbench {each.printed_by}: {each.about}") for name, each in documents().items()),
        ),
    )


_WITH_DOCUMENTS = (
    "ggbench.show.plan_document",
    "ggbench.show.limits_document",
    "ggbench.show.model_documents",
    "ggbench.show.published_document",
    "ggbench.show.run_documents",
    "ggbench.decisions.compare.document",
    "ggbench.decisions.doctor.show",
    "ggbench.decisions.pick.document",
    "ggbench.formats.keeping",
)


def documents() -> dict[str, Document]:
    """Return what commands print with --json, by the names in `schema`."""
    from ggbench.show.document import Document
    from ggbench.show.presenter import presenters

    modules = [vars(importlib.import_module(name)).values() for name in _WITH_DOCUMENTS]
    found = [each for values in modules for each in values if isinstance(each, Document)]
    found += [each for presenter in presenters() for each in presenter.documents.all]
    return {each.schema: each for each in found}


TOPICS = {
    "numbers": Topic("every number and mark", _numbers),
    "names": Topic("how to name a MODEL and a QUANT", _names),
    "defaults": Topic("what differs from llama-server", _defaults),
    "servers": Topic("how a server is measured", _servers),
    "scripts": Topic("output, exit codes, files and completion", _scripts),
    "schema": Topic("the documents of --json, and the schema of each", _schema),
}
