"""Made-up detections: true boxes that are moved, doubled, mistaken and invented."""

import json

import numpy as np
import torch


def guesses(targets, sizes, labels, seed=0):
    """Predictions for `targets`; scores have three digits, so that some tie."""
    numbers = np.random.default_rng(seed)
    found = []
    for target, (width, height) in zip(targets, sizes, strict=True):
        boxes, names = [], []
        for box, label in zip(target["boxes"].numpy(), target["labels"].tolist(), strict=True):
            for _ in range(numbers.integers(0, 4)):
                strength = numbers.choice([0.02, 0.08, 0.2])
                size = box[2:] - box[:2]
                moved = box + np.tile(size, 2) * numbers.normal(0, strength, 4)
                boxes.append(moved)
                names.append(label if numbers.random() < 0.85 else numbers.choice(labels))
        for _ in range(numbers.integers(0, 6)):
            corner = numbers.random(2) * [width, height] * 0.7
            boxes.append(np.concatenate([corner, corner + 5 + numbers.random(2) * 40]))
            names.append(numbers.choice(labels))
        edges = np.array(boxes, dtype=np.float32).reshape(-1, 4)
        edges = np.clip(edges, 0, [width, height, width, height])
        kept = (edges[:, 2:] - edges[:, :2] > 1).all(1)
        scores = np.round(numbers.random(len(boxes)), 3)
        found.append(
            {
                "boxes": torch.from_numpy(edges[kept].astype(np.float32)),
                "labels": torch.tensor(np.array(names, dtype=np.int64)[kept]),
                "scores": torch.from_numpy(scores[kept].astype(np.float32)),
            }
        )
    return found


def random_targets(images=40, seed=0, crowds=True):
    """Boxes of all sizes, some images without any, some crowds, areas unlike the boxes'."""
    numbers = np.random.default_rng(seed)
    targets = []
    for _ in range(images):
        number = int(numbers.integers(0, 6))
        corner = numbers.random((number, 2)) * 200
        size = np.exp(numbers.uniform(np.log(6), np.log(280), (number, 2)))
        boxes = np.concatenate([corner, corner + size], 1).astype(np.float32)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(1) * numbers.uniform(0.5, 1, number)
        targets.append(
            {
                "boxes": torch.from_numpy(boxes),
                "labels": torch.from_numpy(numbers.integers(1, 4, number)),
                "area": torch.from_numpy(area.astype(np.float32)),
                "iscrowd": torch.from_numpy((numbers.random(number) < 0.1 * crowds).astype(int)),
            }
        )
    return targets


def as_numpy(found):
    return {
        name: values.double().numpy() if values.is_floating_point() else values.numpy()
        for name, values in found.items()
    }


def pycocotools_figures(predictions, targets, labels, folder):
    """The twelve figures of COCO's own tool."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def edges(box):
        left, top, right, bottom = (float(edge) for edge in box)
        return [left, top, right - left, bottom - top]

    annotations, found = [], []
    for number, (predicted, target) in enumerate(zip(predictions, targets, strict=True)):
        for row in range(len(target["labels"])):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": int(target["labels"][row]),
                    "bbox": edges(target["boxes"][row]),
                    "area": float(target["area"][row]),
                    "iscrowd": int(target["iscrowd"][row]),
                }
            )
        for row in range(len(predicted["labels"])):
            found.append(
                {
                    "image_id": number,
                    "category_id": int(predicted["labels"][row]),
                    "bbox": edges(predicted["boxes"][row]),
                    "score": float(predicted["scores"][row]),
                }
            )
    content = {
        "info": {},
        "images": [{"id": number} for number in range(len(targets))],
        "annotations": annotations,
        "categories": [{"id": int(label), "name": str(label)} for label in labels],
    }
    (folder / "truth.json").write_text(json.dumps(content))
    truth = COCO(str(folder / "truth.json"))
    evaluation = COCOeval(truth, truth.loadRes(found), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    names = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
    return {**dict(zip(names, evaluation.stats[:6], strict=True)), "ar": evaluation.stats[8]}
