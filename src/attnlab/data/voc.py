"""Boxes in Pascal VOC's XML, one file per image."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from attnlab._errors import InputError
from attnlab.data.box_checks import FoundBox, FoundImage
from attnlab.data.box_sets import FoundSets

_EDGES = ("xmin", "ymin", "xmax", "ymax")


def voc(
    root: Path,
    train: str = "ImageSets/Main/trainval.txt",
    test: str = "ImageSets/Main/test.txt",
    annotations: str = "Annotations",
    images: str = "JPEGImages",
) -> FoundSets:
    """Lists of images, one name per line, and folders of annotations and images below `root`; the
    defaults are VOC's own. Its pixels count from 1 and boxes include their last one. Objects that
    are marked difficult are taken as crowds: not trained on, and no mistake whatever is found.
    """
    lists = [root / train, root / test]
    parts = []
    files = list(lists)
    for listing in lists:
        names = _names(listing)
        files += [root / annotations / f"{name}.xml" for name in names]
        parts.append([_image(root / annotations / f"{name}.xml", root / images) for name in names])
    found = sorted({box.category for part in parts for image in part for box in image.boxes})
    return FoundSets(
        parts[0],
        parts[1],
        {name: number for number, name in enumerate(found, 1)},
        tuple(found),
        tuple(dict.fromkeys(files)),
    )


def _names(listing: Path) -> list[str]:
    if not listing.is_file():
        raise InputError(
            f"There is no {str(listing)!r}. Expected a list of images, one name per line: "
            f"data.options = {{ train = 'ImageSets/Main/trainval.txt', test = … }}."
        )
    lines = listing.read_text(encoding="utf-8").splitlines()
    names = [line.split()[0] for line in lines if line.strip()]
    repeated = sorted({name for name in names if names.count(name) > 1}) if _repeats(names) else []
    if repeated:
        raise InputError(f"{str(listing)!r} names {repeated[0]!r} more than once.")
    return names


def _repeats(names: list[str]) -> bool:
    return len(set(names)) < len(names)


def _image(file: Path, folder: Path) -> FoundImage:
    if not file.is_file():
        raise InputError(f"There is no {str(file)!r}, the annotation of an image that is listed.")
    content = file.read_bytes()
    if b"<!" in content.replace(b"<!--", b""):  # entities can be nested until they fill the memory
        raise InputError(f"{str(file)!r} declares entities, which no annotation needs.")
    try:
        tree = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise InputError(f"{str(file)!r} is not XML: {error}.") from None
    width, height = (_number(tree, f"size/{name}", file) for name in ("width", "height"))
    name = tree.findtext("filename") or f"{file.stem}.jpg"
    boxes = tuple(_box(each, number, file) for number, each in enumerate(tree.findall("object")))
    return FoundImage(folder / Path(name).name, int(width), int(height), boxes)


def _box(found: ElementTree.Element, number: int, file: Path) -> FoundBox:
    left, top, right, bottom = (_number(found, f"bndbox/{edge}", file, number) for edge in _EDGES)
    return FoundBox(
        f"{file.name}, object {number}",
        (found.findtext("name") or "").strip(),
        (left - 1, top - 1, right, bottom),
        (found.findtext("difficult") or "0").strip() == "1",
    )


def _number(found: ElementTree.Element, path: str, file: Path, number: int | None = None) -> float:
    text = found.findtext(path)
    try:
        return float(text or "")
    except ValueError:
        where = "" if number is None else f" of object {number}"
        raise InputError(
            f"{str(file)!r}: expected a number as {path}{where} but got {text!r}."
        ) from None
