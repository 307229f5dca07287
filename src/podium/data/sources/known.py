"""The datasets podium can fetch: their classes and the sha256 of their four idx files,
uncompressed."""

from dataclasses import dataclass

from podium.errors import InvalidInput

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True, kw_only=True)
class Known:
    """A dataset that can be recognized byte by byte."""

    name: str
    """Value of ``--dataset``."""

    mirrors: tuple[str, ...] = ()
    """Web addresses of the gzipped files, in the order they are tried."""

    classes: tuple[str, ...]

    recipe: str = "digit"
    """How a picture becomes an image of it, see podium.data.pictures."""

    sha256: dict[str, str]
    """Checksum of each file, uncompressed."""


DATASETS = {
    "mnist": Known(
        name="mnist",
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        classes=tuple("0123456789"),
        sha256={
            "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
    ),
    "fashion-mnist": Known(
        name="fashion-mnist",
        recipe="garment",
        mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        classes=(
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ),
        sha256={
            "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
    ),
}


def known_dataset(name: str) -> Known:
    """Look up a dataset.

    Raises:
        InvalidInput: There is none of this name; the hint suggests the nearest.
    """
    if name in DATASETS:
        return DATASETS[name]
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), DATASETS, 1)
    hint = (
        f"did you mean {near[0]}?" if near else f"./{name} for a directory, table:{name} for a file"
    )
    names = ", ".join(DATASETS)
    raise InvalidInput(
        f"the dataset must be one of {names}, a KIND:LOCATION or a path, but got {name!r}", hint
    )
