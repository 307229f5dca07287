"""The model: how dense the training rows of each class lie around a new row."""

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler


class Densities:
    """A kernel density estimate for each class, in a few principal components.

    Args:
        bandwidth: Width of the kernel, in standard deviations of the components.
        components: Number of principal components.
    """

    def __init__(self, bandwidth: float, components: int) -> None:
        self.bandwidth, self.components = bandwidth, components

    def fit(
        self, rows: NDArray[np.float32], labels: NDArray[np.int64], classes: int
    ) -> "Densities":
        """Estimate the density of each class."""
        self.space: Pipeline = make_pipeline(
            StandardScaler(), PCA(self.components, whiten=True, random_state=1)
        )
        points = self.space.fit_transform(rows)
        self.shares = np.bincount(labels, minlength=classes) / len(labels)
        self.kernels = [
            KernelDensity(bandwidth=self.bandwidth).fit(points[labels == k]) for k in range(classes)
        ]
        return self

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the probability of each class, [n, classes]."""
        points = self.space.transform(rows)
        logs = np.stack([kernel.score_samples(points) for kernel in self.kernels], 1) + np.log(
            self.shares
        )
        shares = np.exp(logs - logs.max(1, keepdims=True))
        return (shares / shares.sum(1, keepdims=True)).astype(np.float32)
