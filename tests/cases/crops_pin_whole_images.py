"""The loader keeps a small crop of each photo; the crop is a NumPy view, so every full-size photo stays in memory.
Source: https://stackoverflow.com/questions/50009978/numpy-garbage-collection-after-slicing"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 40
rng = np.random.default_rng(0)


def load_photo(i):
    return rng.integers(0, 255, (1080, 1920, 3), dtype=np.uint8)


def center_crop(img, size=96):
    top, left = (img.shape[0] - size) // 2, (img.shape[1] - size) // 2
    if BAD:
        return img[top:top + size, left:left + size]  # CULPRIT
    return img[top:top + size, left:left + size].copy()


class FaceSequence(keras.utils.PyDataset):
    def __init__(self, crops, batch_size=8):
        super().__init__()
        self.crops, self.batch_size = crops, batch_size

    def __len__(self):
        return len(self.crops) // self.batch_size

    def __getitem__(self, i):
        xb = np.stack(self.crops[i * self.batch_size:(i + 1) * self.batch_size]).astype("float32") / 255
        return xb, np.zeros((len(xb), 1), "float32")


start = mem()
crops = [center_crop(load_photo(i)) for i in range(STEPS)]
model = keras.Sequential([keras.Input((96, 96, 3)), keras.layers.Conv2D(8, 3), keras.layers.GlobalAveragePooling2D(),
                          keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(FaceSequence(crops), epochs=1, verbose=0)

print(json.dumps({"case": "crops_pin_whole_images", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
