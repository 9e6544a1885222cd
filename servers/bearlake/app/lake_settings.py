"""The settings of a command that opens the stores itself, without joining the deployment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bearlake.app import embedded
from bearlake.app.children import METADATA_VARIABLE
from bearlake.errors import Invalid
from bearlake.settings.document import Given, Settings, load_document


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeOptions:
    """Where the stores are: a data folder of `bearlake up`, below a settings file; single URLs (`options`) override both."""

    data_dir: Path | None
    config: Path | None
    options: Given
    may_be_absent: bool = False
    """Whether the data folder may be without a metadata store, which the command makes."""


def lake_settings(options: LakeOptions, environ: Mapping[str, str]) -> Settings:
    """Return the settings of a command. Raises `Invalid`, also if no folder, file or URL names the stores."""
    defaults: Given = {}
    folder = options.data_dir
    if folder is not None and "metadata.url" not in options.options and METADATA_VARIABLE not in environ:
        if options.config is None and not options.may_be_absent and not (folder / "metadata.db").exists():
            raise Invalid(
                f"there is no metadata store in {folder}: pass --data-dir of a `bearlake up`, or --config of a cluster"
            )
        defaults = {path: (url, "data folder") for path, url in embedded.urls(folder).items()}
    return load_document(options.config, environ, options.options, defaults).settings
