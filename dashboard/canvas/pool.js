// The heatmap: what the server says of it, its layout, and what is painted when. It knows words and
// colours, not events.

class PoolView {
  // `act` has inspect(block) and pin(block); `root` is the element of the class "glass".
  constructor(root, act) {
    this.root = root
    this.act = act
    const find = (selector) => root.querySelector(selector)
    this.box = find(".left")
    this.stage = find(".stage")
    this.canvas = find(".cells")
    this.minimap = find(".minimap")
    this.notice = find(".notice")
    this.legend = new Legend(find(".legend"))
    this.cells = new Cells()
    this.overlay = new Overlay(find(".overlay"), () => this.drawOverlay())
    this.hover = new Hover(find(".tip.hover"), this.canvas, act.inspect)
    this.choice = new ReadingChoice(find(".readings"), () => this.repaint())
    this.pinned = null
    this.mates = []
    this.selected = []
    this.whole = true
    this.paints = 0
    this.draw = onceAFrame(() => this.paint())
    this.drawOverlay = onceAFrame(() => this.grid && this.theme && this.paintOverlay())
    this.buildZoom(find(".zoom"))
    this.pointing = new Pointing(this)
    this.listen()
  }

  close() {
    this.listeners.abort()
    this.pointing.close()
    this.overlay.close()
    this.hover.close()
    this.resizes.disconnect()
    this.draw.cancel()
    this.drawOverlay.cancel()
    clearTimeout(this.labelling)
  }

  buildZoom(zoom) {
    this.zoomed = element("span", "", "quiet")
    const middle = () => [this.canvas.width / 2, this.canvas.height / 2]
    this.wholeButton = button("Whole pool", "Show the whole pool (0)", () => this.unzoom())
    zoom.replaceChildren(
      this.zoomed,
      this.wholeButton,
      button("−", "Zoom out (−)", () => this.zoom(1 / 1.6, ...middle())),
      button("+", "Zoom in (+)", () => this.zoom(1.6, ...middle())),
    )
  }

  listen() {
    this.listeners = new AbortController()
    const { signal } = this.listeners
    this.resizes = new ResizeObserver(() => this.layout())
    this.resizes.observe(this.box)
    addEventListener("resize", () => this.layout(), { signal })
    addEventListener("scroll", () => this.hover.place(this.view), { signal, capture: true, passive: true })
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
    if (before && before.live !== moment.live) this.overlay.flashes.clear()
    this.draw()
  }

  takeCells(frame) {
    const resized = this.cells.take(frame)
    if (resized) this.canvas.words = this.cells.words // for whoever inspects the page
    if (frame.blocks === null) this.whole = true
    const still = !this.moment?.live && !this.moment?.playing
    if (frame.flashes.length || still) this.overlay.flashes.add(frame.flashes, still)
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
    if (this.hover.learn(facts)) this.showTip()
  }

  setTheme(theme) {
    this.theme = theme
    this.repaint()
  }

  // -- drawing ----------------------------------------------------------------------------------

  // All of it anew, legend and all: its colours are others.
  repaint() {
    this.whole = true
    this.legend.forget()
    this.draw()
  }

  // As large as the window allows: down to its lower edge, with the legend in view.
  layout() {
    const { count } = this.cells
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
    for (const canvas of [this.canvas, this.overlay.canvas]) {
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
    const { view, theme, cells } = this
    const { reading } = this.choice
    const repaint = cells.read(reading)
    const context = this.canvas.getContext("2d")
    if ((!view.rich || view.zoomed) && (this.whole || repaint.size)) {
      this.picture.update(cells.indices, reading.colours(theme))
      if (!view.rich) this.picture.paint(context, view, theme)
    }
    if (view.rich) {
      const paintCell = this.cellPainter()
      if (this.whole) context.clearRect(0, 0, view.width, view.height)
      for (const block of this.whole ? view.visible() : repaint) {
        if (view.isVisible(block)) paintCell(context, view, ...view.origin(block), block)
      }
    }
    this.whole = false
    this.showZoom()
    this.paintOverlay()
    if (this.fresh) {
      this.fresh = false
      this.paints += 1
      this.canvas.dataset.paints = String(this.paints)
    }
    this.tell()
  }

  // Paints the rich cell of a block at (left, top) of a context, as it is read now.
  cellPainter() {
    const { theme, fillsKnown, cells } = this
    const [words, details] = cells.words
    const colours = this.choice.reading.colours(theme)
    const owners = this.choice.name === "owner" ? [] : theme.owners // they are the cell's colour
    return (context, view, left, top, block) => {
      const owner = owners[ownerOf(details[block]) - 1] ?? null
      const look = { theme, colour: colours[cells.indices[block]], owner, fillsKnown }
      paintRich(context, view, left, top, block, words[block], look)
    }
  }

  paintOverlay() {
    const { hover } = this
    this.overlay.paint(this.view, this.theme, {
      current: this.moment?.current,
      selected: this.selected,
      mates: hover.facts ? hover.facts.mates : this.mates,
      pinned: this.pinned,
      cursor: hover.block,
    })
  }

  showZoom() {
    const { view } = this
    this.minimap.hidden = !view.zoomed
    this.wholeButton.hidden = !view.zoomed
    this.zoomed.textContent = view.zoomed ? `${(view.cell / this.grid.cell).toFixed(1)}×` : ""
    if (view.zoomed) paintMinimap(this.minimap, view, this.picture, this.theme)
  }

  // -- numbers: legend, description, and what a machine may read ----------------------------------

  tell() {
    const { cells, choice } = this
    const data = this.canvas.dataset
    data.numBlocks = String(cells.count)
    data.seq = String(cells.seq)
    data.step = String(cells.step)
    data.reading = choice.name
    this.stateNow = cells.stateCounts()
    data.counts = JSON.stringify(this.stateNow)
    data.geometry = JSON.stringify({ ...this.grid, view: { ...this.view, grid: undefined } })
    const counts = cells.colourCounts(choice.reading)
    if (this.legend.show(choice.name, this.theme, counts, this.moment?.current)) this.layout()
    // A screen reader that follows every frame would never stop.
    this.labelling ??= setTimeout(() => this.label(), this.labelled ? 1000 : 0)
  }

  label() {
    this.labelling = null
    this.labelled = true
    const counts = this.stateNow
    const parts = STATES.map((name) => `${number(counts[name])} ${name}`).join(", ")
    const step = number(Math.max(0, this.cells.step))
    const pool = `Block pool of ${number(this.cells.count)} blocks at step ${step}: ${parts}. Arrow keys move a cursor, Enter pins a block.`
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

  moveTo(left, top) {
    this.view.moveTo(left, top)
    this.moved()
  }

  reveal(block) {
    if (!this.view.zoomed) return
    this.view.reveal(block)
    this.moved()
  }

  // -- pointing and pinning -------------------------------------------------------------------------

  get cursor() {
    return this.hover.block
  }

  point(block) {
    if (this.hover.point(block)) this.draw()
  }

  pin(block) {
    if (block !== null) this.act.pin(block === this.pinned ? null : block)
  }

  unpin() {
    this.act.pin(null)
  }

  showTip() {
    if (this.hover.show(this.view, this.theme, this.cellPainter())) this.draw()
  }
}

// How far the page is scrolled, whichever element scrolls it.
function scrollTop(node) {
  let top = 0
  for (let at = node; at; at = at.parentNode ?? at.host) top += at.scrollTop ?? 0
  return top
}
