// Where each block is drawn. Lengths are device pixels, so that every edge is crisp.

const RICH_BLOCKS = 1024 // up to here, cells may show fill, number and glyphs
const RICH_CELL = 15 // CSS pixels that such a cell needs
const LARGEST_CELL = 84 // CSS pixels

// The largest square cell with which `count` blocks fit into width x height (CSS pixels); one device
// pixel a block where they cannot fit, and then the grid grows down.
function fitGrid(count, width, height, ratio) {
  const wide = Math.max(1, Math.floor(width * ratio))
  const high = Math.max(1, Math.floor(height * ratio))
  let cell = Math.floor(Math.min(Math.sqrt((wide * high) / count), LARGEST_CELL * ratio)) + 1
  while (cell > 1 && Math.floor(wide / cell) * Math.floor(high / cell) < count) cell -= 1
  cell = Math.max(1, cell)
  const rows = Math.ceil(count / Math.floor(wide / cell))
  const columns = Math.ceil(count / rows)
  const rich = count <= RICH_BLOCKS && cell >= RICH_CELL * ratio
  let gap = 0
  if (rich) gap = Math.max(1, Math.round(cell * 0.06))
  else if (cell >= 5 * ratio) gap = 1
  return { columns, rows: Math.ceil(count / columns), cell, gap, rich, ratio, count }
}

// The block under a point of the canvas (CSS pixels); null beside the blocks.
function blockAt(grid, x, y) {
  const column = Math.floor((x * grid.ratio) / grid.cell)
  const row = Math.floor((y * grid.ratio) / grid.cell)
  const block = row * grid.columns + column
  const inside = column >= 0 && row >= 0 && column < grid.columns && block < grid.count
  return inside ? block : null
}

// The top left corner of a block's cell.
const cellOrigin = (grid, block) => [
  (block % grid.columns) * grid.cell,
  Math.floor(block / grid.columns) * grid.cell,
]
