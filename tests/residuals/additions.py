"""Small networks whose additions look alike, and of which only some update a state."""

import torch
from tests.surgery.insertion.networks import Branch, SlotBlock
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Dot products of one head; `embed` adds the embeddings of positions here, as Hugging Face's
    DETR does, and not in the layer, as the original does."""

    def __init__(self, width: int, embed: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.embed = embed

    def forward(self, queries, keys, values, places=None, other_places=None):
        if self.embed:
            queries, keys = queries + places, keys + other_places
        scores = self.q(queries) @ self.k(keys).transpose(1, 2)
        return self.out(torch.softmax(scores, -1) @ self.v(values))


class EncoderLayer(nn.Module):
    def __init__(self, width: int, embed: bool) -> None:
        super().__init__()
        self.attention = Attention(width, embed)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, places):
        if self.attention.embed:
            update = self.attention(x, x, x, places, places)
        else:
            queries = x + places
            update = self.attention(queries, queries, x)
        x = self.norm1(x + update)
        return self.norm2(x + self.mlp(x))


class DecoderLayer(nn.Module):
    def __init__(self, width: int, embed: bool) -> None:
        super().__init__()
        self.own, self.cross = Attention(width, embed), Attention(width, embed)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x, queries, memory, places):
        if self.own.embed:
            update = self.own(x, x, x, queries, queries)
        else:
            update = self.own(x + queries, x + queries, x)
        x = self.norms[0](x + update)
        if self.own.embed:
            update = self.cross(x, memory, memory, queries, places)
        else:
            update = self.cross(x + queries, memory + places, memory)
        x = self.norms[1](x + update)
        return self.norms[2](x + self.mlp(x))


class Stack(nn.Module):
    """Layers, each of which gets the same other arguments."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, *others):
        for layer in self.layers:
            x = layer(x, *others)
        return x


class Detr(nn.Module):
    """Two encoder and two decoder layers. The positions are sines, the queries learned; both are
    added anew in every layer."""

    def __init__(self, embed: bool = False, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.queries = nn.Embedding(5, width)
        self.encoder = Stack(*(EncoderLayer(width, embed) for _ in range(2)))
        self.decoder = Stack(*(DecoderLayer(width, embed) for _ in range(2)))
        self.boxes = nn.Linear(width, 4)

    def forward(self, images):
        features = self.stem(images).flatten(2).transpose(1, 2)
        places = torch.sin(torch.arange(features[0].numel()).float()).view(1, *features.shape[1:])
        places = places.expand_as(features)
        memory = self.encoder(features, places)
        queries = self.queries.weight.unsqueeze(0).expand(len(images), -1, -1)
        found = self.decoder(torch.zeros_like(queries), queries, memory, places)
        return self.boxes(found).sigmoid()


class Backbone(nn.Module):
    """Three residual blocks, each at half the resolution of the one before."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.downs = nn.ModuleList(nn.Conv2d(c, channels, 2, 2) for c in (3, channels, channels))
        self.blocks = nn.ModuleList(SlotBlock(channels) for _ in range(3))

    def forward(self, x):
        levels = []
        for down, block in zip(self.downs, self.blocks, strict=True):
            x = block(down(x))
            levels.append(x)
        return levels


class Pyramid(nn.Module):
    """A feature pyramid's top-down sums."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(3))
        self.outer = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))

    def forward(self, levels):
        last = self.inner[2](levels[2])
        merged = [self.outer[2](last)]
        for level in (1, 0):
            last = self.inner[level](levels[level]) + functional.interpolate(last, scale_factor=2)
            merged.append(self.outer[level](last))
        return merged


class LogitSum(nn.Module):
    """LRASPP: the classes seen at two resolutions are added."""

    def __init__(self) -> None:
        super().__init__()
        self.features = Branch()
        self.scale = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Sigmoid())
        self.low, self.high = nn.Conv2d(8, 5, 1), nn.Conv2d(8, 5, 1)

    def forward(self, levels):
        low, high = levels[0], levels[2]
        high = functional.interpolate(self.features(high) * self.scale(high), low.shape[-2:])
        return self.low(low) + self.high(high)


class AttentionGate(nn.Module):
    """AttentionUnet: what comes up says which of the skipped features to keep."""

    def __init__(self) -> None:
        super().__init__()
        self.of_gate, self.of_skip = (
            nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)) for _ in range(2)
        )
        self.map = nn.Sequential(nn.Conv2d(8, 1, 1), nn.Sigmoid())

    def forward(self, gate, skip):
        return skip * self.map(torch.relu(self.of_gate(gate) + self.of_skip(skip)))


class AttentionUp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.ConvTranspose2d(8, 8, 2, 2) for _ in range(2))
        self.gates = nn.ModuleList(AttentionGate() for _ in range(2))
        self.merge = nn.ModuleList(nn.Conv2d(16, 8, 1) for _ in range(2))

    def forward(self, levels):
        x = levels[2]
        for up, gate, merge, skip in zip(
            self.up, self.gates, self.merge, (levels[1], levels[0]), strict=True
        ):
            x = up(x)
            x = merge(torch.cat([gate(x, skip), x], 1))
        return x


class AddingUp(nn.Module):
    """A U-Net's way up, that adds what it skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.ConvTranspose2d(8, 8, 2, 2) for _ in range(2))
        self.blocks = nn.ModuleList(SlotBlock() for _ in range(2))

    def forward(self, levels):
        x = levels[2]
        for up, block, skip in zip(self.up, self.blocks, (levels[1], levels[0]), strict=True):
            x = block(up(x) + skip)
        return x


class WithHead(nn.Module):
    """A backbone and something that reads all of its levels."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = Backbone(), head

    def forward(self, images):
        return self.head(self.backbone(images))


class ConvNormAct(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, size: int = 1, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.SiLU(),
        )


class Bottleneck(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = ConvNormAct(channels, channels, 3), ConvNormAct(channels, channels, 3)

    def forward(self, x):
        return x + self.cv2(self.cv1(x))


class C2f(nn.Module):
    """YOLOv8's block: half of the channels pass residual steps, every state is kept."""

    def __init__(self, channels: int, depth: int = 2) -> None:
        super().__init__()
        half = channels // 2
        self.cv1 = ConvNormAct(channels, channels)
        self.m = nn.ModuleList(Bottleneck(half) for _ in range(depth))
        self.cv2 = ConvNormAct((2 + depth) * half, channels)

    def forward(self, x):
        states = list(self.cv1(x).chunk(2, 1))
        for step in self.m:
            states.append(step(states[-1]))
        return self.cv2(torch.cat(states, 1))


class Yolo(nn.Module):
    """Backbone, top-down neck by concatenation, boxes as sums of anchors and distances."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNormAct(3, 8, 3, 2)
        self.c1, self.down, self.c2 = C2f(8), ConvNormAct(8, 8, 3, 2), C2f(8)
        self.merge = ConvNormAct(16, 8)
        self.boxes = nn.Conv2d(8, 4, 1)

    def forward(self, images):
        fine = self.c1(self.stem(images))
        coarse = self.c2(self.down(fine))
        x = self.merge(torch.cat([functional.interpolate(coarse, scale_factor=2), fine], 1))
        near, far = self.boxes(x).flatten(2).chunk(2, 1)
        anchors = torch.arange(near[0].numel()).float().view(1, *near.shape[1:]).expand_as(near)
        low, high = anchors - near, anchors + far
        return torch.cat([(low + high) / 2, high - low], 1)


class PyramidAttention(nn.Module):
    """PAN: resolutions fused inside one module, and none of them is a state that takes steps."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = (nn.Sequential(nn.MaxPool2d(2), Branch()) for _ in range(2))
        self.same, self.side = Branch(), nn.Conv2d(8, 8, 1)

    def forward(self, x):
        fine = self.down1(x)
        coarse = self.down2(fine)
        fine = self.side(fine) + functional.interpolate(coarse, scale_factor=2)
        return self.same(x) * functional.interpolate(fine, scale_factor=2)


class SlicedBoxes(nn.Module):
    """Grounding DINO's decoder: each side of the boxes becomes a sine, these become queries, and
    queries become changes of the boxes' logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.change = nn.Linear(4, 8), nn.Linear(8, 4)
        self.layers = nn.ModuleList(Attention(8) for _ in range(2))

    def forward(self, boxes, x):
        for layer in self.layers:
            sines = torch.cat([torch.sin(9 * boxes[..., k : k + 1]) for k in range(4)], -1)
            queries = layer(torch.relu(self.embed(sines)), x, x)
            boxes = (self.change(queries) + torch.logit(boxes)).sigmoid()
        return boxes


class QueriedBoxes(nn.Module):
    """Its head: boxes are predicted from queries that were made of first boxes and of what these
    were made of."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first, self.embed = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(4, 8)
        self.layer, self.change = Attention(8), nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        boxes = self.first(x).sigmoid()
        queries = self.layer(torch.relu(self.embed(boxes)), x, x)
        return (self.change(queries) + torch.logit(boxes)).sigmoid()


class GivenBoxes(nn.Module):
    """First boxes, given to a decoder that refines them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first, self.refine = nn.Linear(8, 8), nn.Linear(8, 4), SlicedBoxes()

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.refine(self.first(x).sigmoid(), x)
