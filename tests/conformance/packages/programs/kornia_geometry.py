"""Kornia: filters, edges, colour spaces, homography warps and local features of images."""

import kornia as K
import torch

from ..program import Program


def program(compile):
    @compile
    def process(image, points):
        gray = K.color.rgb_to_grayscale(image)
        smooth = K.filters.gaussian_blur2d(gray, (5, 5), (1.2, 1.2))
        edges = K.filters.sobel(smooth)
        lab = K.color.rgb_to_lab(image)
        corners = K.feature.harris_response(gray, k=0.04)
        angle = torch.full((image.shape[0],), 30.0)
        rotated = K.geometry.transform.rotate(image, angle)
        size = torch.tensor([[[0.0, 0.0], [15.0, 0.0], [15.0, 15.0], [0.0, 15.0]]]).expand(image.shape[0], -1, -1)
        matrix = K.geometry.transform.get_perspective_transform(size, size + points)
        warped = K.geometry.transform.warp_perspective(image, matrix, (16, 16))
        return edges, lab, corners, rotated, warped, K.metrics.ssim(image, rotated, 5).mean()

    def batch(n):
        return torch.rand(n, 3, 16, 16, requires_grad=True), torch.rand(n, 4, 2)

    return Program(process, [lambda: batch(2), lambda: batch(3)], tolerance=1e-3)
