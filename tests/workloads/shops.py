"""Tables of the kinds that small businesses have, made up: tickets, an export, churn."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

#: Words that tell a ticket's class, with and without prefixes, and words that tell nothing.
_TELLING = {
    "billing": "الفاتورة فاتورة والفاتورة المبلغ بالمبلغ الدفع دفع رسوم الرسوم استرداد",
    "delivery": "الشحنة شحنة التوصيل توصيل السائق والسائق الطلبية المندوب تأخر العنوان",
    "technical": "التطبيق تطبيق بالتطبيق خطأ الخطأ تسجيل الدخول كلمة المرور يتوقف",
}
_IDLE = (
    "مرحبا السلام عليكم لدي مشكلة في من على أرجو المساعدة شكرا منذ أمس اليوم لم يتم هل يمكن "
    "الرجاء الرد بسرعة لو سمحتم عندي حسابي رقم"
)


def write_tickets(path: Path, rows: int = 300, seed: int = 1) -> Path:
    """Arabic tickets of three classes, which only the text tells; beside it an idle number."""
    random = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["ticket", "text", "hour", "queue"])
        for number in range(rows):
            queue = str(random.choice(list(_TELLING)))
            words = [
                *random.choice(_IDLE.split(), size=int(random.integers(4, 9))),
                *random.choice(_TELLING[queue].split(), size=2, replace=False),
            ]
            random.shuffle(words)
            text = " ".join(str(word) for word in words) + str(random.choice(["", ".", "؟", "!"]))
            writer.writerow([f"T-{number:05d}", text, int(random.integers(0, 24)), queue])
    return path


def _continental(value: float) -> str:
    return f"{value:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".")


def write_export(path: Path, rows: int = 400, seed: int = 2) -> Path:
    """An export of a spreadsheet: semicolons, decimal commas, dates, currency, Arabic digits.

    What is bought (``Umsatz``) follows from price, discount, count and month.
    """
    random = np.random.default_rng(seed)
    arabic = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
    first = np.datetime64("2024-01-01")
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter=";", lineterminator="\r\n")
        writer.writerow(["Datum", "Preis", "Rabatt", "Budget", "Menge", "Punkte", "Umsatz"])
        for _ in range(rows):
            day = first + np.timedelta64(int(random.integers(0, 730)), "D")
            year, month, date = str(day).split("-")
            price, count = float(random.uniform(2, 3_000)), int(random.integers(1, 40))
            discount = float(random.uniform(0, 30))
            season = 1.6 if month in ("11", "12") else 1.0
            sales = price * (1 - discount / 100) * season + 25 * count
            writer.writerow([
                f"{date}.{month}.{year}", _continental(price),
                f"{discount:.1f}".replace(".", ",") + random.choice(["%", "٪", " %"]),
                f"AED {random.uniform(500, 90_000):,.2f}", str(count).translate(arabic),
                f"{int(random.integers(1, 9))}.{int(random.integers(0, 1000)):03d}",
                _continental(sales + float(random.normal(0, 20))),
            ])  # fmt: skip
    return path


def write_churn(path: Path, rows: int = 4_000, seed: int = 3) -> Path:
    """Customers of whom 3 % leave: those for whom two columns meet, not either alone."""
    random = np.random.default_rng(seed)
    visits, late = random.integers(0, 30, rows), random.integers(0, 10, rows)
    spend, months = random.lognormal(6, 0.7, rows), random.integers(1, 60, rows)
    plan = random.choice(["basic", "plus", "family"], rows)
    risk = ((visits < 8) & (late > 6)) | ((plan == "basic") & (months < 4) & (spend > 600))
    leaves = random.random(rows) < np.where(risk, 0.33, 0.003)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["customer", "visits", "late", "spend", "months", "plan", "left"])
        for index in range(rows):
            writer.writerow([
                f"C{index:06d}", visits[index], late[index], f"{spend[index]:.2f}",
                months[index], plan[index], "yes" if leaves[index] else "no",
            ])  # fmt: skip
    return path


def write_noise(path: Path, rows: int = 200, seed: int = 4) -> Path:
    """Two columns that tell nothing of the class."""
    random = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["note", "height", "colour", "class"])
        for number in range(rows):
            writer.writerow([
                f"N{number}", round(float(random.normal()), 3),
                str(random.choice(["red", "blue"])), str(random.choice(["a", "b", "c"])),
            ])  # fmt: skip
    return path
