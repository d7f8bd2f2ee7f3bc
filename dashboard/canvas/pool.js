// The heatmap: cells, overlay, pointer and keyboard. It knows words and colours, not events.

const LENS_BELOW = 12 // CSS pixels of a cell, under which the tooltip has a lens
const LENS = { columns: 9, rows: 5, cell: 26 }
const DRAG_SLOP = 4 // CSS pixels that a click may move
const FADE_MS = 100 // between two steps of the fading: a smooth one would cost more than the cells
const READING_KEY = "glasspool-reading"

class PoolView {
  // `act` has inspect(block) and pin(block); `root` is the element of the class "glass".
  constructor(root, act) {
    this.root = root
    this.act = act
    const find = (selector) => root.querySelector(selector)
    this.box = find(".left")
    this.stage = find(".stage")
    this.canvas = find(".cells")
    this.overlay = find(".overlay")
    this.minimap = find(".minimap")
    this.notice = find(".notice")
    this.legend = new Legend(find(".legend"))
    this.tip = find(".tip.hover")
    this.words = [0, 1, 2].map(() => new Uint32Array(0))
    this.indices = new Uint8Array(0)
    this.flashes = new Flashes()
    this.calm = matchMedia("(prefers-reduced-motion: reduce)")
    this.reading = localStorage.getItem(READING_KEY) in READINGS ? localStorage.getItem(READING_KEY) : "state"
    this.cursor = null
    this.facts = null
    this.pinned = null
    this.mates = []
    this.selected = []
    this.changed = new Set()
    this.whole = true
    this.paints = 0
    this.draw = onceAFrame(() => this.paint())
    this.drawOverlay = onceAFrame(() => this.grid && this.theme && this.paintOverlay())
    this.lens = element("canvas", undefined, "lens")
    this.buildTools(find(".readings"), find(".zoom"))
    this.listen()
  }

  close() {
    this.listeners.abort()
    this.resizes.disconnect()
    this.draw.cancel()
    this.drawOverlay.cancel()
    clearTimeout(this.fading)
    clearTimeout(this.labelling)
    clearTimeout(this.asking)
  }

  buildTools(readings, zoom) {
    this.choices = Object.entries(READINGS).map(([name, { label, help }]) => {
      const choice = button(label, help, () => this.read(name), "choice")
      choice.setAttribute("role", "radio")
      choice.setAttribute("aria-label", label)
      choice.dataset.reading = name
      return choice
    })
    readings.replaceChildren(element("span", "Colour", "quiet"), ...this.choices)
    this.zoomed = element("span", "", "quiet")
    const middle = () => [this.canvas.width / 2, this.canvas.height / 2]
    this.wholeButton = button("Whole pool", "Show the whole pool (0)", () => this.unzoom())
    zoom.replaceChildren(
      this.zoomed,
      this.wholeButton,
      button("−", "Zoom out (−)", () => this.zoom(1 / 1.6, ...middle())),
      button("+", "Zoom in (+)", () => this.zoom(1.6, ...middle())),
    )
    this.markChoice()
  }

  listen() {
    this.listeners = new AbortController()
    const { signal } = this.listeners
    const { canvas } = this
    this.resizes = new ResizeObserver(() => this.layout())
    this.resizes.observe(this.box)
    addEventListener("resize", () => this.layout(), { signal })
    addEventListener("scroll", () => this.placeTip(), { signal, capture: true, passive: true })
    canvas.addEventListener("pointerdown", (e) => this.grab(e), { signal })
    canvas.addEventListener("pointermove", (e) => this.drag(e) || this.point(this.blockOf(e)), { signal })
    canvas.addEventListener("pointerup", (e) => this.drop(e), { signal })
    canvas.addEventListener("pointercancel", () => (this.grabbed = null), { signal })
    canvas.addEventListener("pointerleave", () => this.point(null), { signal })
    canvas.addEventListener("wheel", (e) => this.wheel(e), { signal, passive: false })
    canvas.addEventListener("keydown", (e) => this.key(e), { signal })
    canvas.addEventListener("blur", () => this.point(null), { signal })
  }

  // -- what the server says ---------------------------------------------------------------------

  setMoment(moment) {
    const before = this.moment
    this.moment = moment
    const relearn = moment.knows.join() !== before?.knows.join()
    this.fillsKnown = moment.knows.includes("fills")
    const blind = moment.knows.length > 0 && !moment.knows.includes("physical_blocks")
    this.root.classList.toggle("stale", !moment.current)
    this.notice.hidden = moment.current && !blind
    this.notice.textContent = blind ? "This source does not say which physical block holds what." : moment.text
    this.canvas.dataset.current = String(moment.current)
    this.canvas.dataset.live = String(moment.live)
    if (relearn) this.whole = true
    if (before && before.live !== moment.live) this.flashes.clear()
    this.draw()
  }

  takeCells({ numBlocks, seq, step, blocks, words, flashes }) {
    const resized = numBlocks !== this.words[0].length
    if (resized) {
      this.words = [0, 1, 2].map(() => new Uint32Array(numBlocks))
      this.indices = new Uint8Array(numBlocks)
      this.canvas.words = this.words // for whoever inspects the page
    }
    const [cells, details, changes] = this.words
    const count = words.length / 3
    for (let i = 0; i < count; i += 1) {
      const block = blocks === null ? i : blocks[i]
      cells[block] = words[3 * i]
      details[block] = words[3 * i + 1]
      changes[block] = words[3 * i + 2]
      if (blocks !== null) this.changed.add(block)
    }
    if (blocks === null) this.whole = true
    const still = !this.moment?.live && !this.moment?.playing
    if (flashes.length || still) this.flashes.add(flashes, still)
    this.seq = seq
    this.step = step
    this.fresh = true
    if (resized) this.layout()
    this.draw()
  }

  setSelected(blocks) {
    this.selected = blocks
    this.draw()
  }

  setPinned(block, mates) {
    if (block !== this.pinned && block !== null && this.view?.zoomed && block < this.grid.count) {
      this.view.reveal(block)
      this.whole = true
    }
    this.pinned = block
    this.mates = mates
    this.draw()
  }

  setFacts(facts) {
    if (facts !== null && facts.block !== this.cursor) return
    this.facts = facts
    this.showTip()
  }

  setTheme(theme) {
    this.theme = theme
    this.whole = true
    this.legend.forget()
    this.draw()
  }

  // -- drawing ----------------------------------------------------------------------------------

  read(name) {
    this.reading = name
    localStorage.setItem(READING_KEY, name)
    this.markChoice()
    this.whole = true
    this.legend.forget()
    this.draw()
  }

  markChoice() {
    for (const choice of this.choices) {
      choice.setAttribute("aria-checked", String(choice.dataset.reading === this.reading))
    }
  }

  // As large as the window allows: down to its lower edge, with the legend in view.
  layout() {
    const count = this.words[0].length
    const width = this.box.clientWidth
    if (!count || !width) return
    const ratio = devicePixelRatio || 1
    const above = this.stage.getBoundingClientRect().top + scrollTop(this.root)
    const below = this.legend.height + 14
    const height = Math.max(220, innerHeight - above - below)
    const grid = fitGrid(count, width, height, ratio)
    this.root.style.setProperty("--stage", `${Math.round(height + below)}px`)
    if (JSON.stringify(grid) === JSON.stringify(this.grid)) return
    this.grid = grid
    this.view = new View(grid)
    this.view.font = this.theme?.font ?? "sans-serif"
    this.picture = new Picture(grid)
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = this.view.width
      canvas.height = this.view.height
      canvas.style.width = `${canvas.width / ratio}px`
      canvas.style.height = `${canvas.height / ratio}px`
    }
    this.whole = true
    this.draw()
  }

  paint() {
    if (!this.grid || !this.theme) return
    const { view, theme } = this
    const reading = READINGS[this.reading]
    const colours = reading.colours(theme)
    const repaint = this.readAll(reading)
    const context = this.canvas.getContext("2d")
    if (!view.rich || this.grid.count > RICH_BLOCKS) {
      if (this.whole || repaint.size) this.picture.update(this.indices, colours)
    }
    if (!view.rich) {
      if (this.whole || repaint.size) this.picture.paint(context, view, theme)
    } else {
      if (this.whole) context.clearRect(0, 0, view.width, view.height)
      for (const block of this.whole ? view.visible() : repaint) {
        if (!view.isVisible(block)) continue
        paintRich(context, view, ...view.origin(block), block, this.words[0][block], this.lookOf(block, colours))
      }
    }
    this.whole = false
    this.changed.clear()
    this.paintOverlay()
    if (this.fresh) {
      this.fresh = false
      this.paints += 1
      this.canvas.dataset.paints = String(this.paints)
    }
    this.tell()
  }

  lookOf(block, colours) {
    const owner = ownerOf(this.words[1][block])
    return {
      theme: this.theme,
      colour: colours[this.indices[block]],
      owner: owner && this.reading !== "owner" ? this.theme.owners[owner - 1] : null,
      fillsKnown: this.fillsKnown,
    }
  }

  // Each block's colour anew; gives the blocks that have to be painted again.
  readAll({ index }) {
    const [cells, details, changes] = this.words
    const repaint = this.changed
    for (let block = 0; block < cells.length; block += 1) {
      const at = index(cells[block], details[block], changes[block], this.seq)
      if (at !== this.indices[block]) {
        this.indices[block] = at
        repaint.add(block)
      }
    }
    return repaint
  }

  paintOverlay() {
    const context = this.overlay.getContext("2d")
    const { view, theme, grid } = this
    context.clearRect(0, 0, view.width, view.height)
    if (!view.gap) {
      // No room for lines between cells: a frame shows where the pool ends.
      context.strokeStyle = css(mix(theme.text, theme.page, 0.4))
      context.lineWidth = 1
      context.strokeRect(0.5, 0.5, view.width - 1, view.height - 1)
    }
    this.paintMinimap()
    if (!this.moment?.current) return
    if (this.selected.length) this.dimOthers(context)
    clearTimeout(this.fading)
    if (this.flashes.paint(context, view, theme, this.calm.matches)) {
      this.fading = setTimeout(() => this.drawOverlay(), FADE_MS)
    }
    const outline = (block, width, colour) => {
      if (block === null || block >= grid.count || !view.isVisible(block)) return
      const [left, top] = view.origin(block)
      const [w, h] = [view.cell - view.gap, view.tall - view.gap]
      context.lineWidth = width
      context.strokeStyle = css(colour)
      context.strokeRect(left - width / 2, top - width / 2, w + width, h + width)
    }
    const mates = this.facts ? this.facts.mates : this.mates
    for (const mate of mates) outline(mate, Math.max(1, grid.ratio), theme.text)
    for (const [block, colour] of [[this.pinned, theme.palette[1]], [this.cursor, theme.text]]) {
      outline(block, 2 * grid.ratio + 2, theme.page)
      outline(block, 2 * grid.ratio, colour)
    }
  }

  // A selected request: everything that is not its own steps back.
  dimOthers(context) {
    const { view, theme } = this
    context.fillStyle = `rgb(${theme.page.join(" ")} / 68%)`
    context.fillRect(0, 0, view.width, view.height)
    const width = Math.max(1, Math.round(this.grid.ratio * (view.cell > 12 ? 1.5 : 1)))
    for (const block of this.selected) {
      if (block >= this.grid.count || !view.isVisible(block)) continue
      const [left, top] = view.origin(block)
      context.clearRect(left, top, view.cell - view.gap, view.tall - view.gap)
      if (view.cell < 5) continue
      context.lineWidth = width
      context.strokeStyle = css(theme.text)
      context.strokeRect(left + width / 2, top + width / 2, view.cell - view.gap - width, view.tall - view.gap - width)
    }
  }

  // Where in the pool one looks, while zoomed in.
  paintMinimap() {
    const { view, grid, minimap } = this
    minimap.hidden = !view.zoomed
    this.wholeButton.hidden = !view.zoomed
    this.zoomed.textContent = view.zoomed ? `${(view.cell / grid.cell).toFixed(1)}×` : ""
    if (!view.zoomed) return
    const scale = Math.min(1, (150 * grid.ratio) / Math.max(view.width, view.height))
    const [width, height] = [view.width * scale, view.height * scale].map(Math.round)
    if (minimap.width !== width) minimap.width = width
    if (minimap.height !== height) minimap.height = height
    minimap.style.width = `${width / grid.ratio}px`
    minimap.style.height = `${height / grid.ratio}px`
    const context = minimap.getContext("2d")
    context.imageSmoothingEnabled = false
    if (this.grid.count <= RICH_BLOCKS) this.picture.update(this.indices, READINGS[this.reading].colours(this.theme))
    context.drawImage(this.picture.canvas, 0, 0, width, height)
    const [x, y] = [grid.columns * view.cell, grid.rows * view.tall]
    context.strokeStyle = css(this.theme.text)
    context.lineWidth = 2 * grid.ratio
    context.strokeRect(
      (view.left / x) * width,
      (view.top / y) * height,
      (view.width / x) * width,
      (view.height / y) * height,
    )
  }

  // -- numbers: legend, description, and what a machine may read ----------------------------------

  tell() {
    const counts = new Uint32Array(READINGS[this.reading].legend.length)
    for (let block = 0; block < this.indices.length; block += 1) counts[this.indices[block]] += 1
    const data = this.canvas.dataset
    data.numBlocks = String(this.words[0].length)
    data.seq = String(this.seq)
    data.step = String(this.step)
    data.reading = this.reading
    this.stateNow = this.stateCounts()
    data.counts = JSON.stringify(this.stateNow)
    data.geometry = JSON.stringify({ ...this.grid, view: { ...this.view, grid: undefined } })
    if (this.legend.show(this.reading, this.theme, counts, this.moment?.current)) this.layout()
    // A screen reader that follows every frame would never stop.
    this.labelling ??= setTimeout(() => this.label(), this.labelled ? 1000 : 0)
  }

  // Blocks by state, marks apart: what the canvas holds, whatever it is coloured by.
  stateCounts() {
    const kinds = new Uint32Array(32)
    const cells = this.words[0]
    for (let block = 0; block < cells.length; block += 1) kinds[cells[block] & 31] += 1
    const counts = { free: 0, used: 0, cached: 0, shared: 0, copied: 0, preempted: 0 }
    kinds.forEach((count, kind) => {
      if (!count) return
      counts[STATES[stateOf(kind)]] += count
      if (markOf(kind)) counts[MARKS[markOf(kind)]] += count
    })
    return counts
  }

  label() {
    this.labelling = null
    this.labelled = true
    const counts = this.stateNow
    const parts = STATES.map((name) => `${number(counts[name])} ${name}`).join(", ")
    const step = number(Math.max(0, this.step))
    const pool = `Block pool of ${number(this.words[0].length)} blocks at step ${step}: ${parts}. Arrow keys move a cursor, Enter pins a block.`
    this.canvas.setAttribute("aria-label", this.moment?.current ? pool : `Block pool. ${this.moment?.text}`)
  }

  // -- zooming and moving ---------------------------------------------------------------------------

  zoom(factor, x, y) {
    if (!this.view) return
    this.view.zoom(factor, x, y)
    this.moved()
  }

  unzoom() {
    this.view?.reset()
    this.moved()
  }

  moved() {
    this.whole = true
    this.draw()
    this.showTip()
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect()
    return [event.clientX - box.left, event.clientY - box.top].map((n) => n * this.grid.ratio)
  }

  blockOf(event) {
    return this.view ? this.view.blockAt(...this.place(event)) : null
  }

  // The wheel scrolls the page, as everywhere, unless the pool has the focus or Ctrl is held.
  wheel(event) {
    const focused = this.root.getRootNode().activeElement === this.canvas
    if (!this.view || !(event.ctrlKey || event.metaKey || focused || this.view.zoomed)) return
    event.preventDefault()
    this.zoom(Math.exp(-event.deltaY / 400), ...this.place(event))
  }

  grab(event) {
    if (event.button === 0 && this.view) this.grabbed = { x: event.clientX, y: event.clientY, left: this.view.left, top: this.view.top, moved: false }
  }

  // True while a drag goes on.
  drag(event) {
    const { grabbed } = this
    if (!grabbed) return false
    const [dx, dy] = [event.clientX - grabbed.x, event.clientY - grabbed.y]
    if (!grabbed.moved && Math.hypot(dx, dy) < DRAG_SLOP) return false
    if (!grabbed.moved) this.canvas.setPointerCapture(event.pointerId)
    grabbed.moved = true
    this.point(null)
    this.view.moveTo(grabbed.left - dx * this.grid.ratio, grabbed.top - dy * this.grid.ratio)
    this.moved()
    return true
  }

  drop(event) {
    const { grabbed } = this
    this.grabbed = null
    if (grabbed && !grabbed.moved) this.pin(this.blockOf(event))
  }

  // -- pointing and pinning -------------------------------------------------------------------------

  point(block) {
    if (block === this.cursor) return
    this.cursor = block
    this.facts = null
    this.showTip()
    this.draw()
    // The last of a quick movement is what counts.
    this.asking ??= setTimeout(() => {
      this.asking = null
      this.act.inspect(this.cursor)
    }, 40)
  }

  pin(block) {
    if (block !== null) this.act.pin(block === this.pinned ? null : block)
  }

  key(event) {
    const { grid, view } = this
    if (!grid || event.ctrlKey || event.metaKey || event.altKey) return
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns }
    const at = this.cursor ?? this.pinned ?? 0
    if (event.key in moves) {
      const next = this.cursor === null ? at : at + moves[event.key]
      if (next >= 0 && next < grid.count) {
        this.point(next)
        if (view.zoomed) {
          view.reveal(next)
          this.moved()
        }
      }
    } else if (event.key === "Enter" || event.key === " ") this.pin(at)
    else if (event.key === "Escape") this.act.pin(null)
    else if (event.key === "+" || event.key === "=") this.zoom(1.6, ...this.middleOf(at))
    else if (event.key === "-") this.zoom(1 / 1.6, ...this.middleOf(at))
    else if (event.key === "0") this.unzoom()
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  middleOf(block) {
    const [x, y] = this.view.origin(block)
    return [x + this.view.cell / 2, y + this.view.tall / 2]
  }

  showTip() {
    const { facts, tip } = this
    tip.hidden = facts === null || facts.block !== this.cursor || !this.view?.isVisible(facts.block)
    if (tip.hidden) return
    const small = this.view.cell < LENS_BELOW * this.grid.ratio
    if (small) this.paintLens(facts.block)
    fillTip(tip, facts, small ? this.lens : null)
    this.placeTip()
    this.draw()
  }

  // The blocks around one, drawn rich.
  paintLens(block) {
    const { grid, theme } = this
    const { ratio } = grid
    const cell = Math.round(LENS.cell * ratio)
    const [width, height] = [LENS.columns * cell, LENS.rows * cell]
    Object.assign(this.lens, { width, height })
    this.lens.style.width = `${width / ratio}px`
    this.lens.style.height = `${height / ratio}px`
    const context = this.lens.getContext("2d")
    const view = { cell, tall: cell, gap: gapOf(cell, true, ratio), grid, font: theme.font }
    const colours = READINGS[this.reading].colours(theme)
    const [column, row] = [block % grid.columns, Math.floor(block / grid.columns)]
    for (let dy = 0; dy < LENS.rows; dy += 1) {
      for (let dx = 0; dx < LENS.columns; dx += 1) {
        const x = column + dx - (LENS.columns >> 1)
        const y = row + dy - (LENS.rows >> 1)
        const near = y * grid.columns + x
        if (x < 0 || x >= grid.columns || y < 0 || near >= grid.count) continue
        paintRich(context, view, dx * cell, dy * cell, near, this.words[0][near], this.lookOf(near, colours))
      }
    }
    context.strokeStyle = css(theme.text)
    context.lineWidth = 2 * ratio
    context.strokeRect((LENS.columns >> 1) * cell - 1, (LENS.rows >> 1) * cell - 1, cell, cell)
  }

  placeTip() {
    if (this.tip.hidden || !this.grid || this.cursor === null) return
    const box = this.canvas.getBoundingClientRect()
    const { ratio } = this.grid
    const [x, y] = this.view.origin(this.cursor).map((n) => n / ratio)
    const [left, top] = [box.left + x, box.top + y]
    placeTip(this.tip, { left, top, right: left + this.view.cell / ratio, bottom: top + this.view.tall / ratio })
  }
}

// How far the page is scrolled, whichever element scrolls it.
function scrollTop(node) {
  let top = 0
  for (let at = node; at; at = at.parentNode ?? at.host) top += at.scrollTop ?? 0
  return top
}
