"""Rewrite the generated sections of the pages in `specs/`: `python -m tests.meta.write_specs`."""

from tests.meta.pages import pages, render_page

if __name__ == "__main__":
    for page in pages():
        text = render_page(page)
        if text != page.read_text():
            page.write_text(text)
            print(f"rewrote {page.name}")
