"""Builds the wheel, with nothing but Python: the module, and the library beside it.

    pip install crates/capi/python                   after cargo build --release -p landfall-c
    python3 backend.py FOLDER LIBRARY [NOTICE...]    with this library, and licences of others

The library is looked for where cargo puts a release build, or is what LANDFALL_LIBRARY names.
"""

import base64
import hashlib
import os
import re
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
LIBRARY = "liblandfall_c.so"


def get_requires_for_build_wheel(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The hook of PEP 517."""
    return write(Path(wheel_directory), library(), [])


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("the library is built by cargo: build a wheel from the repository")


def library():
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / LIBRARY
    found = Path(os.environ.get("LANDFALL_LIBRARY", built))
    if not found.is_file():
        raise SystemExit(f"there is no {found}: cargo build --release -p landfall-c")
    return found


def project():
    with open(HERE / "pyproject.toml", "rb") as file:
        return tomllib.load(file)["project"]


def tag(binary):
    """For which systems it is: those whose C library is as new as what it calls, as manylinux
    (PEP 600) names them."""
    machine = sysconfig.get_platform().removeprefix("linux-").replace("-", "_")
    newest = max(int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)", binary))
    return f"py3-none-manylinux_2_{newest}_{machine}"


def metadata(project):
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
             f"Summary: {project['description']}", f"License: {project['license']['text']}",
             f"Requires-Python: {project['requires-python']}",
             "Description-Content-Type: text/markdown"]
    for extra, needs in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {need} ; extra == "{extra}"' for need in needs]
    return "\n".join(lines) + "\n\n" + (HERE.parent / "README.md").read_text()


def contents(library, notices):
    """What is in it: names and bytes."""
    about, binary = project(), library.read_bytes()
    info = f"{about['name']}-{about['version']}.dist-info"
    for source in sorted((HERE / "landfall").glob("*.py")):
        yield f"landfall/{source.name}", source.read_bytes()
    yield f"landfall/{LIBRARY}", binary
    yield f"{info}/METADATA", metadata(about).encode()
    yield (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: landfall\nRoot-Is-Purelib: false\n"
                            f"Tag: {tag(binary)}\n".encode())
    for notice in [ROOT / "LICENSE-MIT", ROOT / "LICENSE-APACHE", *notices]:
        yield f"{info}/licenses/{notice.name}", notice.read_bytes()


def write(folder, library, notices):
    """Writes it, and gives its name."""
    about, binary = project(), library.read_bytes()
    name = f"{about['name']}-{about['version']}-{tag(binary)}.whl"
    record = f"{about['name']}-{about['version']}.dist-info/RECORD"
    lines = []
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(path, data):
            # The same files give the same wheel.
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)

        for path, data in contents(library, notices):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            lines.append(f"{path},sha256={digest},{len(data)}")
            add(path, data)
        add(record, ("\n".join([*lines, f"{record},,"]) + "\n").encode())
    return name


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), Path(sys.argv[2]), [Path(notice) for notice in sys.argv[3:]]))
