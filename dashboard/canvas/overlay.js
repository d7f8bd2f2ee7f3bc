// What lies over the cells: the pool's end, a selected request, what just happened, cursor and pin.

const FADE_MS = 100 // between two steps of the fading: a smooth one would cost more than the cells

class Overlay {
  // `again` is called when what fades has to be painted once more.
  constructor(canvas, again) {
    this.canvas = canvas
    this.again = again
    this.flashes = new Flashes()
    this.calm = matchMedia("(prefers-reduced-motion: reduce)")
  }

  close() {
    clearTimeout(this.fading)
  }

  // `shown` has current, and the blocks: selected, mates, pinned (or null), cursor (or null).
  paint(view, theme, shown) {
    const context = this.canvas.getContext("2d")
    context.clearRect(0, 0, view.width, view.height)
    if (!view.gap) {
      // No room for lines between cells: a frame shows where the pool ends.
      context.strokeStyle = css(mix(theme.text, theme.page, 0.4))
      context.lineWidth = 1
      context.strokeRect(0.5, 0.5, view.width - 1, view.height - 1)
    }
    if (!shown.current) return
    if (shown.selected.length) dimOthers(context, view, theme, shown.selected)
    clearTimeout(this.fading)
    if (this.flashes.paint(context, view, theme, this.calm.matches)) {
      this.fading = setTimeout(this.again, FADE_MS)
    }
    const { ratio } = view.grid
    for (const mate of shown.mates) outline(context, view, mate, Math.max(1, ratio), theme.text)
    for (const [block, colour] of [[shown.pinned, theme.palette[1]], [shown.cursor, theme.text]]) {
      outline(context, view, block, 2 * ratio + 2, theme.page)
      outline(context, view, block, 2 * ratio, colour)
    }
  }
}

function outline(context, view, block, width, colour) {
  if (block === null || block >= view.grid.count || !view.isVisible(block)) return
  const [left, top] = view.origin(block)
  const [w, h] = [view.cell - view.gap, view.tall - view.gap]
  context.lineWidth = width
  context.strokeStyle = css(colour)
  context.strokeRect(left - width / 2, top - width / 2, w + width, h + width)
}

// A selected request: everything that is not its own steps back.
function dimOthers(context, view, theme, selected) {
  context.fillStyle = `rgb(${theme.page.join(" ")} / 68%)`
  context.fillRect(0, 0, view.width, view.height)
  const width = Math.max(1, Math.round(view.grid.ratio * (view.cell > 12 ? 1.5 : 1)))
  for (const block of selected) {
    if (block >= view.grid.count || !view.isVisible(block)) continue
    const [left, top] = view.origin(block)
    context.clearRect(left, top, view.cell - view.gap, view.tall - view.gap)
    if (view.cell < 5) continue
    context.lineWidth = width
    context.strokeStyle = css(theme.text)
    context.strokeRect(left + width / 2, top + width / 2, view.cell - view.gap - width, view.tall - view.gap - width)
  }
}

// Where in the pool one looks, while zoomed in: the whole `picture` with a frame.
function paintMinimap(canvas, view, picture, theme) {
  const { grid } = view
  const scale = Math.min(1, (150 * grid.ratio) / Math.max(view.width, view.height))
  const [width, height] = [view.width * scale, view.height * scale].map(Math.round)
  if (canvas.width !== width) canvas.width = width
  if (canvas.height !== height) canvas.height = height
  canvas.style.width = `${width / grid.ratio}px`
  canvas.style.height = `${height / grid.ratio}px`
  const context = canvas.getContext("2d")
  context.imageSmoothingEnabled = false
  context.drawImage(picture.canvas, 0, 0, width, height)
  const [x, y] = [grid.columns * view.cell, grid.rows * view.tall]
  context.strokeStyle = css(theme.text)
  context.lineWidth = 2 * grid.ratio
  context.strokeRect(
    (view.left / x) * width,
    (view.top / y) * height,
    (view.width / x) * width,
    (view.height / y) * height,
  )
}
