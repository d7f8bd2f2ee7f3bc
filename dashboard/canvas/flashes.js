// Glyphs for what just happened to a block: they fade, or stay while the moment stands still.
//   + allocated    -- copied, with a line from the source    x preempted    - evicted

const FLASH_MS = 1200
const MOST_FLASHES = 400
const MOST_LINES = 6
const FLASH_COLOUR = { 1: 1, 3: 4, 5: 5, 7: 5 } // Touch -> index into the palette

class Flashes {
  constructor() {
    this.live = []
  }

  // `events` is Touch, block, source a flash. `still`: they belong to the step that is shown.
  add(events, still) {
    if (still) this.live = []
    const born = performance.now()
    // Of what befell a block in one go, the last is what it shows.
    const last = new Map()
    for (let i = 0; i < events.length; i += 3) last.set(events[i + 1], i)
    this.live = this.live.filter(({ block }) => !last.has(block))
    for (let i = 0; i < events.length; i += 3) {
      if (last.get(events[i + 1]) !== i) continue
      this.live.push({ touch: events[i], block: events[i + 1], source: events[i + 2], born, still })
    }
    this.live = this.live.slice(-MOST_FLASHES)
  }

  clear() {
    this.live = []
  }

  // Draws what is still to be seen; true while another frame will differ.
  paint(context, view, theme, calm) {
    const now = performance.now()
    this.live = this.live.filter(({ born, still }) => still || now - born < FLASH_MS)
    let lines = this.live.filter(({ touch }) => touch === TOUCH.copied).length
    for (const flash of this.live) {
      // Beams copy at every step: only the newest lines, or nothing else could be seen.
      flash.line = flash.touch === TOUCH.copied && lines-- <= MOST_LINES
      const age = flash.still || calm ? 0 : (now - flash.born) / FLASH_MS
      context.globalAlpha = 1 - age * age
      paintFlash(context, view, theme, flash)
    }
    context.globalAlpha = 1
    return this.live.some(({ still }) => !still)
  }
}

function paintFlash(context, view, theme, { touch, block, source, line: drawn }) {
  const [x, y] = view.origin(block)
  const [w, h] = [view.cell - view.gap, view.tall - view.gap]
  const colour = css(touch === TOUCH.allocated ? theme.text : theme.palette[FLASH_COLOUR[touch]])
  const { ratio } = view.grid
  const [middleX, middleY] = [x + w / 2, y + h / 2]
  if (drawn) {
    const [sx, sy] = view.origin(source)
    for (const [width, ink] of [[3.5, theme.page], [1.5, theme.palette[4]]]) {
      context.lineWidth = width * ratio
      context.strokeStyle = context.fillStyle = css(ink)
      context.beginPath()
      context.moveTo(sx + w / 2, sy + h / 2)
      context.lineTo(middleX, middleY)
      context.stroke()
      context.beginPath()
      context.arc(middleX, middleY, width * 1.6 * ratio, 0, 7)
      context.fill()
    }
  }
  if (!view.isVisible(block)) return
  const line = Math.max(1, Math.round(1.5 * ratio))
  const reach = Math.max(line / 2, 0.5 * Math.max(0, 4 * ratio - w))
  context.lineWidth = line
  if (w >= 5 * ratio) {
    context.strokeStyle = css(theme.page)
    context.strokeRect(x - reach - line, y - reach - line, w + 2 * (reach + line), h + 2 * (reach + line))
  }
  context.strokeStyle = colour
  context.setLineDash(touch === TOUCH.evicted ? [3 * ratio, 2 * ratio] : [])
  context.strokeRect(x - reach, y - reach, w + 2 * reach, h + 2 * reach)
  context.setLineDash([])
  // A rich cell has a glyph for these two itself.
  if (w < 12 * ratio || (view.rich && (touch === TOUCH.copied || touch === TOUCH.preempted))) return
  const arm = Math.min(w * 0.2, 7 * ratio)
  // Allocated is told in ink: its colour is that of the cell itself.
  const own = touch === TOUCH.allocated ? theme.text : theme.palette[FLASH_COLOUR[touch]]
  for (const [width, ink] of [[line * 3.4, theme.page], [line * 1.5, own]]) {
    context.lineWidth = width
    context.strokeStyle = css(ink)
    context.beginPath()
    flashShape(context, touch, middleX, middleY, arm)
    context.stroke()
  }
}

// The shape alone, for cells and legend alike.
function flashShape(context, touch, x, y, arm) {
  if (touch === TOUCH.preempted) {
    context.moveTo(x - arm, y - arm)
    context.lineTo(x + arm, y + arm)
    context.moveTo(x + arm, y - arm)
    context.lineTo(x - arm, y + arm)
    return
  }
  if (touch === TOUCH.copied) {
    context.rect(x - arm * 0.7, y - arm * 0.7, arm * 1.4, arm * 1.4)
    return
  }
  context.moveTo(x - arm, y)
  context.lineTo(x + arm, y)
  if (touch === TOUCH.allocated) {
    context.moveTo(x, y - arm)
    context.lineTo(x, y + arm)
  }
}
