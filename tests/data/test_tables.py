import json

import pandas
import pytest

from deelbo.data import load_data
from shared.pictures import text_table


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_formats(tmp_path, suffix):
    frame = pandas.DataFrame({"text": ["null", 'with "quotes", commas\nand lines', "Ärger"], "label": [10, 2, 10]})
    path = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    data = load_data(path)
    assert data.train.inputs == list(frame["text"])
    assert data.targets.names == ["2", "10"]
    assert data.train.labels == [1, 0, 1]


def test_folder_with_train_and_test(tmp_path):
    text_table(tmp_path / "train.csv")
    text_table(tmp_path / "test.csv", rows=4)
    data = load_data(tmp_path)
    assert (len(data.train), len(data.test)) == (12, 4)
    assert data.test.names[1] == f"{tmp_path / 'test.csv'}, row 2"
    text_table(tmp_path / "train.tsv")
    with pytest.raises(ValueError, match=r"the same part: train.csv, train.tsv"):
        load_data(tmp_path)


def test_wrong_tables(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("body,label\na,b\n")
    with pytest.raises(ValueError, match='no column "text"; its columns are body, label'):
        load_data(path)
    assert load_data(path, text_column="body").train.inputs == ["a"]
    path.write_text("text,label\na,b\n ,c\nd,\n")
    with pytest.raises(ValueError, match="row 2: no text or no label"):
        load_data(path)
    data = load_data(path, skip_bad=True)
    assert data.train.inputs == ["a"]
    assert "2 rows" in data.notes[0]
    path.write_text("text,label\n")
    with pytest.raises(ValueError, match="has no rows"):
        load_data(path)
    path.write_text('text,label\n"a,b\n')
    with pytest.raises(ValueError, match="cannot be read as csv"):
        load_data(path)
    bad = tmp_path / "rows.parquet"
    bad.write_bytes(b"no parquet")
    with pytest.raises(ValueError, match="cannot be read as parquet"):
        load_data(bad)
    (tmp_path / "rows.xlsx").touch()
    with pytest.raises(ValueError, match="is no table"):
        load_data(tmp_path / "rows.xlsx")
    path.write_bytes("text,label\ncaf\xe9,b\n".encode("latin-1"))
    with pytest.raises(ValueError, match="cannot be read as csv"):
        load_data(path)


def test_missing_values_of_other_formats(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a", "label": 1}\n{"text": null, "label": 2}\n{"text": "c", "label": null}\n')
    with pytest.raises(ValueError, match="row 2"):
        load_data(path)
    assert load_data(path, skip_bad=True).targets.names == ["1"]


def test_shifted_and_merged_rows_are_refused(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,label\nhello, ball team,sport\nbank, stock,money\n")
    with pytest.raises(ValueError, match="row 1 has more fields than the header"):
        load_data(path)
    table = tmp_path / "rows.tsv"
    table.write_text('text\tlabel\n"ball team\tsport\nbank\tmoney\n')
    with pytest.raises(ValueError, match="cannot be read as tsv"):
        load_data(table)


def test_labels_lose_their_spaces_and_lines_keep_their_separators(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(
        json.dumps({"text": "a\u2028b", "label": "x "}, ensure_ascii=False) + '\r\n{"text": "c", "label": " x"}'
    )
    data = load_data(path)
    assert data.targets.names == ["x"]
    assert data.train.inputs == ["a\u2028b", "c"]
    path.write_text("[1]\n")
    with pytest.raises(ValueError, match="each line must be an object"):
        load_data(path)
