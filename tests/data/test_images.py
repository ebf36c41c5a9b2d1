import io
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import Resize
from torchvision.transforms.functional import pil_to_tensor

from deelbo.data import images as module
from deelbo.data import load_data
from deelbo.data.images import ImageFormat, ImageSet, ImageStore, decode, normalized
from shared.pictures import image_folder, picture

FORM = ImageFormat(28, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))  # shorter side 32


def mean_colour(image):
    return image.double().mean((1, 2)).tolist()


def test_shorter_side_is_resized_and_the_longer_at_most_twice():
    assert decode(picture("red", size=(100, 50)), FORM).shape == (3, 32, 64)
    assert decode(picture("red", size=(20, 400)), FORM).shape == (3, 64, 32)
    assert decode(picture("red", size=(33, 32)), FORM).shape == (3, 32, 33)


def test_a_square_is_squashed_and_nothing_is_cut_off():
    """The authors' way: both sides to 256 (here 32), as torchvision's Resize((256, 256)) does it, then the crop."""
    wide = Image.new("RGB", (300, 50), (0, 0, 255))
    wide.paste((255, 0, 0), (0, 0, 75, 50))  # the left quarter, which the middle of a panorama does not have
    square = ImageFormat(28, FORM.mean, FORM.std, "bilinear", square=True)
    found = decode(wide, square)
    expected = pil_to_tensor(Resize((32, 32))(wide))
    assert found.shape == (3, 32, 32)
    assert torch.equal(found, expected)
    assert mean_colour(found)[0] == pytest.approx(255 / 4, abs=2)
    assert "square" in square.as_dict()
    assert "square" not in FORM.as_dict()  # or the records of older comparisons would not be found


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "I;16", "F"]
)
def test_every_mode(mode):
    grey = Image.new("L", (40, 40), 200)
    if mode in ("I", "I;16"):
        image = Image.fromarray(np.full((40, 40), 200 * 257, dtype="uint16"))
        image = image.convert("I") if mode == "I" else image
    elif mode == "F":
        image = Image.fromarray(np.full((40, 40), 200 / 255, dtype="float32"))
    elif mode == "1":
        image = grey.point(lambda value: 255).convert("1")
    elif mode == "PA":
        image = grey.convert("P").convert("PA")
    else:
        image = grey.convert("RGB").convert(mode)
    expected = 255 if mode == "1" else 200
    assert mean_colour(decode(image, FORM)) == pytest.approx([expected] * 3, abs=4)


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "tiff", "webp", "ppm", "ico", "jp2"])
def test_formats(tmp_path, suffix):
    path = tmp_path / f"image.{suffix}"
    Image.new("RGB", (64, 64), (220, 50, 40)).save(path)
    assert mean_colour(decode(path, FORM)) == pytest.approx([220, 50, 40], abs=8)


def test_transparency_is_laid_over_white():
    clear = Image.new("RGBA", (40, 40), (0, 0, 0, 0))
    assert mean_colour(decode(clear, FORM)) == [255, 255, 255]
    palette = Image.new("P", (40, 40), 0)
    palette.info["transparency"] = 0
    assert mean_colour(decode(palette, FORM)) == [255, 255, 255]


def test_rotation_of_the_camera_is_applied(tmp_path):
    image = Image.new("RGB", (80, 40), (0, 0, 0))
    image.paste((255, 255, 255), (0, 0, 40, 40))  # white on the left
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees to the right: white on top
    image.save(tmp_path / "turned.jpg", exif=exif)
    decoded = decode(tmp_path / "turned.jpg", FORM).double().mean(0)
    assert decoded.shape == (64, 32)
    assert decoded[:28].mean() > 240
    assert decoded[36:].mean() < 15


def test_sixteen_bits_are_scaled_alike_in_dark_and_bright_images(tmp_path):
    for value in (200, 300, 60000):
        image = Image.fromarray(np.full((40, 40), value, dtype="uint16"))
        assert mean_colour(decode(image, FORM)) == pytest.approx([value / 257] * 3, abs=1)
    big_endian = Image.frombytes("I;16B", (40, 40), np.full((40, 40), 51400, dtype=">u2").tobytes())
    assert mean_colour(decode(big_endian, FORM)) == pytest.approx([200] * 3, abs=1)


def test_grey_networks():
    assert decode(picture("red"), ImageFormat(28, channels=1)).shape[0] == 1


def test_crops_and_flips():
    image = Image.fromarray(np.arange(32 * 32, dtype="uint8").reshape(32, 32)).convert("RGB")
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    from deelbo.data.examples import Examples

    store = ImageStore(Examples([buffer.getvalue()], [0], ["x"]), FORM)
    whole = store[0]
    torch.testing.assert_close(ImageSet(store, FORM)[0][0], whole[:, 2:30, 2:30])
    views = {bytes(ImageSet(store, FORM, augment=True)[0][0].contiguous().numpy()) for _ in range(300)}
    crops = [whole[:, r : r + 28, c : c + 28] for r in range(5) for c in range(5)]
    possible = {bytes(v.contiguous().numpy()) for crop in crops for v in (crop, crop.flip(2))}
    assert views <= possible
    assert len(views) > 45
    upright = ImageSet(store, FORM, augment=True, flip=False)
    assert {bytes(upright[0][0].contiguous().numpy()) for _ in range(99)} <= {
        bytes(c.contiguous().numpy()) for c in crops
    }
    batch, labels = ImageSet(store, FORM).collate([ImageSet(store, FORM)[0]])
    torch.testing.assert_close(batch[0], (whole[:, 2:30, 2:30] / 255 - 0.5) / 0.25)
    assert labels.tolist() == [0]


def test_mean_and_deviation_of_the_training_set(tmp_path):
    data = load_data(image_folder(tmp_path))
    image_format = ImageFormat(28)
    store = ImageStore(data.train, image_format)
    pixels = torch.cat([store[i].flatten(1) for i in range(len(data.train))], 1).double() / 255
    image_format = normalized(image_format, store)
    assert image_format.mean == pytest.approx(pixels.mean(1).tolist())
    assert image_format.std == pytest.approx(pixels.std(1, correction=0).tolist())
    assert normalized(FORM, store) is FORM


def test_unreadable_images_are_named_or_counted(tmp_path):
    folder = image_folder(tmp_path)
    whole = (folder / "train" / "red" / "1.png").read_bytes()
    (folder / "train" / "red" / "1.png").write_bytes(whole[:60])
    (folder / "train" / "red" / "2.png").write_bytes(b"not an image")
    examples = load_data(folder).train
    with pytest.raises(ValueError, match=r"red/1\.png cannot be read as an image.*skip_bad=True"):
        ImageStore(examples, FORM)
    with pytest.raises(ValueError, match="none of the 2 images can be read"):
        ImageStore(
            examples.take(i for i, n in enumerate(examples.names) if n.endswith(("red/1.png", "red/2.png"))), FORM, True
        )
    store = ImageStore(examples, FORM, skip_bad=True)
    assert [name[-9:] for name in store.bad] == ["red/1.png", "red/2.png"]
    assert len(store.examples) == 16


def test_a_set_that_does_not_fit_is_decoded_at_every_look(tmp_path):
    examples = load_data(image_folder(tmp_path)).train
    kept, read = ImageStore(examples, FORM), ImageStore(examples, FORM, memory=1000)
    assert read.images is None
    read.prepare([0, 3])
    assert all(torch.equal(kept[i], read[i]) for i in range(len(examples)))
    assert not read._waiting
    assert module.MEMORY > 1000


def test_a_store_goes_to_another_process(tmp_path):
    """Where workers are not forked they get copies, without the threads that decode ahead."""
    examples = load_data(str(image_folder(tmp_path / "data"))).train
    for memory in (0, 10**9):
        store = ImageStore(examples, FORM, memory=memory)
        store.prepare([0, 1])
        assert torch.equal(pickle.loads(pickle.dumps(store))[1], store[1])


def test_a_skipped_image_draws_as_much_as_a_made_one(tmp_path):
    store = ImageStore(load_data(image_folder(tmp_path)).train, FORM)
    for augment in (True, False):
        images, after = ImageSet(store, normalized(FORM, store), augment), []
        for look in (images.__getitem__, images.skip):
            torch.manual_seed(0)
            look(3)
            after.append(torch.rand(()))
        assert after[0] == after[1]
