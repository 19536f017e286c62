"""COCO's protocol written out once more, in plain numpy, to compare with."""

import numpy as np

OVERLAPS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
RANGES = {
    "all": (0, 1e10),
    "small": (0, 32**2),
    "medium": (32**2, 96**2),
    "large": (96**2, 1e10),
}


def overlap(found, true, crowd):
    """Intersection over union; over the found box alone where the true one is a crowd."""
    left = np.maximum(found[:, None, 0], true[None, :, 0])
    top = np.maximum(found[:, None, 1], true[None, :, 1])
    right = np.minimum(found[:, None, 2], true[None, :, 2])
    bottom = np.minimum(found[:, None, 3], true[None, :, 3])
    shared = np.clip(right - left, 0, None) * np.clip(bottom - top, 0, None)
    area = [(each[:, 2] - each[:, 0]) * (each[:, 3] - each[:, 1]) for each in (found, true)]
    union = area[0][:, None] + area[1][None] - shared
    return shared / np.where(crowd[None], area[0][:, None], union)


def matched(overlaps, ignored, crowd, threshold):
    """Greedy, by falling score: of each found box, the true one or -1."""
    used = np.zeros(len(ignored), bool)
    chosen = []
    for row in overlaps:
        best, mine = min(threshold, 1 - 1e-10), -1
        for number in np.argsort(ignored, kind="stable"):  # those that count come first
            if used[number] and not crowd[number]:
                continue
            if mine > -1 and not ignored[mine] and ignored[number]:
                break
            if row[number] >= best:
                best, mine = row[number], number
        if mine > -1:
            used[mine] = True
        chosen.append(mine)
    return chosen


def precision_recall(images, label, size, most):
    """(10, 101) precision and (10) recall of one category; None where it has no object."""
    low, high = RANGES[size]
    scores, right, left_out, objects = [], [], [], 0
    for predicted, target in images:
        mine, true = predicted["labels"] == label, target["labels"] == label
        order = np.argsort(-predicted["scores"][mine], kind="stable")[:most]
        boxes, values = predicted["boxes"][mine][order], predicted["scores"][mine][order]
        crowd = target["iscrowd"][true] == 1
        area = target["area"][true]
        ignored = crowd | (area < low) | (area > high)
        objects += int((~ignored).sum())
        own = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        overlaps = overlap(boxes, target["boxes"][true], crowd)
        rows = [matched(overlaps, ignored, crowd, each) for each in OVERLAPS]
        scores += values.tolist()
        right.append(np.array([[n > -1 for n in row] for row in rows], dtype=bool).reshape(10, -1))
        outside = (own < low) | (own > high)
        left_out.append(
            np.array(
                [
                    [ignored[n] if n > -1 else out for n, out in zip(row, outside, strict=True)]
                    for row in rows
                ],
                dtype=bool,
            ).reshape(10, -1)
        )
    if not objects:
        return None
    order = np.argsort(-np.array(scores), kind="stable")
    hits, skipped = (np.concatenate(each, 1)[:, order] for each in (right, left_out))
    precision, recall = np.zeros((10, 101)), np.zeros(10)
    for row in range(10):
        true = np.cumsum(hits[row] & ~skipped[row])
        false = np.cumsum(~hits[row] & ~skipped[row])
        if not len(true):
            continue
        share = true / (true + false + np.spacing(1))
        share = np.maximum.accumulate(share[::-1])[::-1]
        reached = true / objects
        places = np.searchsorted(reached, RECALLS, side="left")
        inside = places < len(share)
        precision[row, inside] = share[places[inside]]
        recall[row] = reached[-1]
    return precision, recall


def figures(images, labels):
    """AP, AP50, AP75, AP of small, medium and large objects, and AR; NaN without an object."""
    found = {
        size: [f for each in labels if (f := precision_recall(images, each, size, 100))]
        for size in RANGES
    }

    def mean(size, rows=slice(None)):
        return np.mean([p[rows] for p, _ in found[size]]) if found[size] else np.nan

    return {
        "ap": mean("all"),
        "ap50": mean("all", 0),
        "ap75": mean("all", 5),
        "ap_small": mean("small"),
        "ap_medium": mean("medium"),
        "ap_large": mean("large"),
        "ar": np.mean([r for _, r in found["all"]]),
    }
