/* A table that sorts by its heads and holds any number of rows: only those in sight are in the page.
 *
 * A column has a title, `value(row)` to sort by, and `cell(row)` for what is shown (text or an element). All rows are of
 * the same height, which the style sets too.
 */
const ROW_HEIGHT = 27;
const BEYOND = 12;
const PRINTED = 60;

class Table {
  constructor(columns, { label, sorted = 0, descending = true, selected = () => false }) {
    this.columns = columns;
    this.rows = [];
    this.by = sorted;
    this.descending = descending;
    this.selected = selected;
    this.heads = columns.map((column, i) => {
      const sorter = button(column.title, { className: "sort", title: column.help ?? `Sort by ${column.title}` }, () => this.sortBy(i));
      return element("th", { scope: "col", className: column.isText ? "text" : "" }, sorter);
    });
    this.body = element("tbody");
    const table = element("table", { "aria-label": label }, element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    this.table = table;
    this.place = element("div", { className: "table", tabIndex: 0, role: "region", "aria-label": label }, table);
    const ask = frames(() => this.render());
    this.place.addEventListener("scroll", ask);
    new ResizeObserver(ask).observe(this.place);
  }

  setRows(rows) {
    this.rows = rows;
    this.sort();
    this.place.scrollTop = 0;
    this.render();
  }

  sortBy(i) {
    this.descending = this.by === i ? !this.descending : !this.columns[i].isText;
    this.by = i;
    this.sort();
    this.place.scrollTop = 0;
    this.render();
  }

  sort() {
    const { value } = this.columns[this.by];
    const sign = this.descending ? -1 : 1;
    const keyed = this.rows.map((row) => [value(row), row]);
    keyed.sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0));
    this.rows = keyed.map(([, row]) => row);
    this.heads.forEach((head, i) => {
      head.setAttribute("aria-sort", i !== this.by ? "none" : this.descending ? "descending" : "ascending");
    });
  }

  /* On paper there is no scrolling: the first rows have to do. */
  print(isPrinting) {
    this.isPrinting = isPrinting;
    this.render();
  }

  render() {
    const first = this.isPrinting ? 0 : Math.max(0, Math.floor(this.place.scrollTop / ROW_HEIGHT) - BEYOND);
    const shown = Math.ceil((this.place.clientHeight || 400) / ROW_HEIGHT) + 2 * BEYOND;
    const last = Math.min(this.rows.length, this.isPrinting ? PRINTED : first + shown);
    const rows = [];
    if (first > 0) rows.push(this.spacer(first));
    for (let r = first; r < last; r++) {
      const row = this.rows[r];
      const cells = this.columns.map((column) => element("td", { className: column.isText ? "text" : "" }, column.cell(row)));
      rows.push(element("tr", { className: this.selected(row) ? "selected" : "", "aria-rowindex": r + 2 }, ...cells));
    }
    if (last < this.rows.length && !this.isPrinting) rows.push(this.spacer(this.rows.length - last));
    this.table.setAttribute("aria-rowcount", this.rows.length + 1);
    this.body.replaceChildren(...rows);
  }

  spacer(rows) {
    const cell = element("td", { colSpan: this.columns.length });
    cell.style.height = `${rows * ROW_HEIGHT}px`;
    return element("tr", { className: "spacer", "aria-hidden": "true" }, cell);
  }

  /* Brings a row into sight. */
  seek(wanted) {
    const r = this.rows.findIndex(wanted);
    if (r < 0) return;
    const top = r * ROW_HEIGHT;
    const { scrollTop, clientHeight } = this.place;
    if (top < scrollTop || top + 3 * ROW_HEIGHT > scrollTop + clientHeight) this.place.scrollTop = Math.max(0, top - clientHeight / 2);
    this.render();
  }
}
