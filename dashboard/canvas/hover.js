// The block under the cursor: what is known of it in a tip beside it, with a lens where cells are small.

const LENS_BELOW = 12 // CSS pixels of a cell, under which the tip has a lens
const LENS = { columns: 9, rows: 5, cell: 26 }
const ASK_MS = 40

class Hover {
  // `inspect(block)` asks for the facts of a block, which come to `learn`.
  constructor(tip, canvas, inspect) {
    this.tip = tip
    this.canvas = canvas
    this.inspect = inspect
    this.lens = element("canvas", undefined, "lens")
    this.block = null
    this.facts = null
  }

  close() {
    clearTimeout(this.asking)
  }

  ask() {
    this.inspect(this.block)
  }

  // False where the cursor is there already.
  point(block) {
    if (block === this.block) return false
    this.block = block
    this.facts = null
    this.tip.hidden = true
    // The last of a quick movement is what counts.
    this.asking ??= setTimeout(() => {
      this.asking = null
      this.ask()
    }, ASK_MS)
    return true
  }

  // False where the facts are of a block that the cursor has left.
  learn(facts) {
    if (facts !== null && facts.block !== this.block) return false
    this.facts = facts
    return true
  }

  // True where there is something to say. `paintCell` is what PoolView.cellPainter gives.
  show(view, theme, paintCell) {
    const { facts, tip } = this
    tip.hidden = facts === null || facts.block !== this.block || !view?.isVisible(facts.block)
    if (tip.hidden) return false
    const small = view.cell < LENS_BELOW * view.grid.ratio
    if (small) paintLens(this.lens, facts.block, view.grid, theme, paintCell)
    fillTip(tip, facts, small ? this.lens : null)
    this.place(view)
    return true
  }

  place(view) {
    if (this.tip.hidden || !view || this.block === null) return
    const box = this.canvas.getBoundingClientRect()
    const { ratio } = view.grid
    const [x, y] = view.origin(this.block).map((n) => n / ratio)
    const [left, top] = [box.left + x, box.top + y]
    placeTip(this.tip, { left, top, right: left + view.cell / ratio, bottom: top + view.tall / ratio })
  }
}

// The blocks around one, drawn rich.
function paintLens(canvas, block, grid, theme, paintCell) {
  const { ratio } = grid
  const cell = Math.round(LENS.cell * ratio)
  const [width, height] = [LENS.columns * cell, LENS.rows * cell]
  Object.assign(canvas, { width, height })
  canvas.style.width = `${width / ratio}px`
  canvas.style.height = `${height / ratio}px`
  const context = canvas.getContext("2d")
  const view = { cell, tall: cell, gap: gapOf(cell, true, ratio), grid, font: theme.font }
  const [column, row] = [block % grid.columns, Math.floor(block / grid.columns)]
  for (let dy = 0; dy < LENS.rows; dy += 1) {
    for (let dx = 0; dx < LENS.columns; dx += 1) {
      const x = column + dx - (LENS.columns >> 1)
      const y = row + dy - (LENS.rows >> 1)
      const near = y * grid.columns + x
      if (x < 0 || x >= grid.columns || y < 0 || near >= grid.count) continue
      paintCell(context, view, dx * cell, dy * cell, near)
    }
  }
  context.strokeStyle = css(theme.text)
  context.lineWidth = 2 * ratio
  context.strokeRect((LENS.columns >> 1) * cell - 1, (LENS.rows >> 1) * cell - 1, cell, cell)
}
