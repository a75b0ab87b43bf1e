"""An archive as WikiText-2 is published in, with a text of its own."""

import io
import zipfile

from ggbench.experiments.quality.texts import MEMBER

TEXT = b" \n = Robert Boulter = \n \n Robert Boulter is an English film , television and theatre actor . \n"


def archive(content: bytes = TEXT, member: str = MEMBER, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as opened:
        for name, held in (("wikitext-2-raw/wiki.train.raw", b"train"), (member, content)):
            opened.writestr(zipfile.ZipInfo(name), held, compression)
    return stream.getvalue()
