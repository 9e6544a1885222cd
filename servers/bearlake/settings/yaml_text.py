"""YAML, for settings: the library is loaded when there is YAML to read or write, because most servers need none (decision 362)."""


class NotYaml(Exception):
    """The text is not YAML; the message says where."""


def parse(text: str | bytes) -> object:
    """Return what the text says. Raises `NotYaml`."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise NotYaml(str(error)) from error


def flow(value: object) -> str:
    """Return the value as YAML of one line."""
    import yaml

    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
