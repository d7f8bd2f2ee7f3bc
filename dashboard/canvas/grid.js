// Where each block is drawn, and what part of it is looked at. Lengths are device pixels, so that
// every edge is crisp.

const RICH_BLOCKS = 1100 // up to here, all cells show fill, number and glyphs
const RICH_CELL = 15 // CSS pixels that such a cell needs
const LARGEST_CELL = 110 // CSS pixels
const LARGEST_ZOOM = 48 // CSS pixels to which a cell can be zoomed, and to twice what it has

// The largest cell with which `count` blocks fit into width x height (CSS pixels). Square, but for
// small cells, where whole pixels would waste room: see smallCell. One device pixel a block where they
// cannot fit, and then the grid grows down.
function fitGrid(count, width, height, ratio) {
  const wide = Math.max(1, Math.floor(width * ratio))
  const high = Math.max(1, Math.floor(height * ratio))
  const fits = (w, h) => Math.floor(wide / w) * Math.floor(high / h) >= count
  let side = Math.floor(Math.min(Math.sqrt((wide * high) / count), LARGEST_CELL * ratio)) + 1
  while (side > 1 && !fits(side, side)) side -= 1
  const [cell, tall] = side < 8 * ratio ? smallCell(side, fits) : [side, side]
  const rows = Math.ceil(count / Math.floor(wide / cell))
  const columns = Math.ceil(count / rows)
  const rich = count <= RICH_BLOCKS && cell >= RICH_CELL * ratio
  return {
    columns,
    rows: Math.ceil(count / columns),
    cell,
    tall,
    gap: gapOf(cell, rich, ratio),
    rich,
    ratio,
    count,
  }
}

// Up to three times as long as wide, where the room gained is worth the shape.
function smallCell(side, fits) {
  let best = { worth: 0, cell: [side, side] }
  for (let cell = 1; cell <= 3 * side + 2; cell += 1) {
    for (let tall = 1; tall <= 3 * side + 2; tall += 1) {
      const aspect = Math.max(cell / tall, tall / cell)
      const worth = (cell * tall) / (0.8 + 0.2 * aspect)
      if (aspect <= 3 && worth > best.worth && fits(cell, tall)) best = { worth, cell: [cell, tall] }
    }
  }
  return best.cell
}

function gapOf(cell, rich, ratio) {
  if (rich) return Math.max(1, Math.round(cell * 0.06))
  return cell >= 5 * ratio ? 1 : 0
}

// What part of the grid the canvas shows: cells of `cell` x `tall`, the corner at (left, top).
class View {
  constructor(grid) {
    this.grid = grid
    this.width = grid.columns * grid.cell
    this.height = grid.rows * grid.tall
    this.reset()
  }

  reset() {
    const { cell, tall, gap, rich } = this.grid
    Object.assign(this, { cell, tall, gap, rich, left: 0, top: 0 })
  }

  get zoomed() {
    return this.cell !== this.grid.cell
  }

  // Cells `factor` times as large, the point (x, y) of the canvas staying where it is.
  zoom(factor, x, y) {
    const { grid } = this
    const column = (this.left + x) / this.cell
    const row = (this.top + y) / this.tall
    const most = Math.max(LARGEST_ZOOM * grid.ratio, 2 * grid.cell)
    let cell = Math.round(this.cell * factor)
    if (cell === this.cell) cell += Math.sign(factor - 1)
    cell = Math.max(grid.cell, Math.min(most, cell))
    if (cell <= grid.cell) return this.reset()
    this.cell = cell
    this.tall = Math.max(1, Math.round((cell * grid.tall) / grid.cell))
    if (cell >= 8 * grid.ratio) this.tall = cell
    this.rich = cell >= RICH_CELL * grid.ratio
    this.gap = gapOf(cell, this.rich, grid.ratio)
    this.moveTo(column * this.cell - x, row * this.tall - y)
  }

  moveTo(left, top) {
    const most = (all, seen) => Math.max(0, all - seen)
    const { columns, rows } = this.grid
    this.left = Math.round(Math.min(Math.max(0, left), most(columns * this.cell, this.width)))
    this.top = Math.round(Math.min(Math.max(0, top), most(rows * this.tall, this.height)))
  }

  // Bring a block into the picture.
  reveal(block) {
    const x = (block % this.grid.columns) * this.cell
    const y = Math.floor(block / this.grid.columns) * this.tall
    const into = (at, size, from, seen) => {
      if (at < from) return at - size
      return at + size > from + seen ? at + 2 * size - seen : from
    }
    this.moveTo(into(x, this.cell, this.left, this.width), into(y, this.tall, this.top, this.height))
  }

  // The top left corner of a block's cell on the canvas.
  origin(block) {
    const { columns } = this.grid
    return [
      (block % columns) * this.cell - this.left,
      Math.floor(block / columns) * this.tall - this.top,
    ]
  }

  // The block under a point of the canvas (device pixels); null beside the blocks.
  blockAt(x, y) {
    const { grid } = this
    const column = Math.floor((x + this.left) / this.cell)
    const row = Math.floor((y + this.top) / this.tall)
    const block = row * grid.columns + column
    const inside = column >= 0 && row >= 0 && column < grid.columns && block < grid.count
    return inside ? block : null
  }

  isVisible(block) {
    const [x, y] = this.origin(block)
    return x > -this.cell && y > -this.tall && x < this.width && y < this.height
  }

  // The blocks that can be seen, in order.
  *visible() {
    const { columns, rows, count } = this.grid
    const first = Math.floor(this.left / this.cell)
    const last = Math.min(columns - 1, Math.floor((this.left + this.width - 1) / this.cell))
    const bottom = Math.min(rows - 1, Math.floor((this.top + this.height - 1) / this.tall))
    for (let row = Math.floor(this.top / this.tall); row <= bottom; row += 1) {
      for (let column = first; column <= last; column += 1) {
        const block = row * columns + column
        if (block < count) yield block
      }
    }
  }
}
