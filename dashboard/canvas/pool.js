// The component: ties socket, drawing, pointer and legend together. One Pool lives in each element.

// One cell of each kind for the legend, in the palette's order: see dashboard/cells.py for the bits.
const SAMPLES = [
  0,
  1 | (175 << 8) | (1 << 16),
  2 | (255 << 8),
  3 | (255 << 8) | (2 << 16),
  1 | (1 << 3) | (175 << 8),
  2 << 3,
]

class Pool {
  constructor(root, path) {
    this.root = root
    const find = (selector) => root.querySelector(selector)
    this.pool = find(".pool")
    this.canvas = find(".cells")
    this.overlay = find(".overlay")
    this.notice = find(".notice")
    this.legend = find(".legend")
    this.tips = { inspect: find(".tip.hover"), pin: find(".tip.pinned") }
    this.blocks = { inspect: null, pin: null }
    this.facts = { inspect: null, pin: null }
    this.cells = new Uint32Array(0)
    this.grid = null
    this.theme = readTheme(root.host ?? root)
    this.status = { phase: "connecting", text: "connecting", current: false, knows: [] }
    this.changed = new Set()
    this.whole = true
    this.socket = new PoolSocket(path, {
      text: (message) => this.take(message),
      cells: (frame) => this.takeCells(frame),
      lost: () => this.setStatus({ ...this.status, text: "The dashboard's server does not answer.", current: false }),
    })
    this.resizes = new ResizeObserver(() => this.layout())
    this.resizes.observe(this.pool)
    this.listeners = new AbortController()
    const { signal } = this.listeners
    addEventListener("resize", () => this.layout(), { signal })
    addEventListener("scroll", () => this.placeTips(), { signal, capture: true, passive: true })
    this.canvas.addEventListener("pointermove", (e) => this.point(blockAtEvent(this, e)), { signal })
    this.canvas.addEventListener("pointerleave", () => this.point(null), { signal })
    this.canvas.addEventListener("click", (e) => this.pin(blockAtEvent(this, e)), { signal })
    this.canvas.addEventListener("keydown", (e) => this.key(e), { signal })
    this.canvas.addEventListener("blur", () => this.point(null), { signal })
    this.setStatus(this.status)
  }

  close() {
    this.socket.close()
    this.resizes.disconnect()
    this.listeners.abort()
    cancelAnimationFrame(this.frame)
    clearTimeout(this.labelling)
    clearTimeout(this.asking)
  }

  // -- what the server says ---------------------------------------------------------------------

  take(message) {
    if (message.status) this.setStatus(message.status)
    for (const question of ["inspect", "pin"]) {
      if (!(question in message)) continue
      const facts = message[question]
      if (facts === null || facts.block === this.blocks[question]) this.facts[question] = facts
      this.showTip(question)
    }
  }

  setStatus(status) {
    const relearn = status.knows.join() !== this.status.knows.join()
    this.status = status
    const blind = this.status.knows.length > 0 && !this.status.knows.includes("physical_blocks")
    this.pool.classList.toggle("stale", !status.current)
    this.notice.hidden = status.current && !blind
    this.notice.textContent = blind ? "This source does not say which physical block holds what." : status.text
    this.canvas.dataset.current = String(status.current)
    if (relearn) this.whole = true
    this.draw()
  }

  takeCells({ numBlocks, seq, step, blocks, values }) {
    const resized = numBlocks !== this.cells.length
    if (blocks === null) {
      this.cells = values.slice()
      this.whole = true
    } else {
      blocks.forEach((block, i) => {
        this.cells[block] = values[i]
        this.changed.add(block)
      })
    }
    this.seq = seq
    this.step = step
    if (resized) this.layout()
    this.draw()
  }

  // -- drawing ----------------------------------------------------------------------------------

  setTheme(theme) {
    this.theme = theme
    this.whole = true
    this.legendKey = null
    this.draw()
  }

  layout() {
    const width = this.pool.clientWidth
    if (!this.cells.length || !width) return
    const ratio = devicePixelRatio || 1
    const height = Math.max(200, Math.min(innerHeight * 0.53, 720))
    const grid = fitGrid(this.cells.length, width, height, ratio)
    if (JSON.stringify(grid) === JSON.stringify(this.grid)) return
    this.grid = grid
    this.plain = grid.rich ? null : new PlainPainter(grid)
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = grid.columns * grid.cell
      canvas.height = grid.rows * grid.cell
      canvas.style.width = `${canvas.width / ratio}px`
      canvas.style.height = `${canvas.height / ratio}px`
    }
    this.whole = true
    this.draw()
  }

  // At most once a frame, however much arrives.
  draw() {
    if (this.frame) return
    this.frame = requestAnimationFrame(() => {
      this.frame = 0
      if (this.grid) this.paint()
    })
  }

  paint() {
    const context = this.canvas.getContext("2d")
    const { grid, theme, cells } = this
    const fillsKnown = this.status.knows.includes("fills")
    if (this.plain) {
      if (this.whole || this.changed.size) this.plain.paint(context, theme, cells)
    } else {
      if (this.whole) context.clearRect(0, 0, this.canvas.width, this.canvas.height)
      const blocks = this.whole ? cells.keys() : this.changed
      for (const block of blocks) paintRich(context, grid, theme, block, cells[block], fillsKnown)
    }
    this.whole = false
    this.changed.clear()
    this.paintOverlay()
    this.tell()
  }

  paintOverlay() {
    const context = this.overlay.getContext("2d")
    const { grid, theme } = this
    context.clearRect(0, 0, this.overlay.width, this.overlay.height)
    if (grid.cell < 5 * grid.ratio) {
      // No room for lines between cells: a frame shows where the pool ends.
      context.strokeStyle = css(mix(theme.text, theme.page, 0.4))
      context.lineWidth = 1
      context.strokeRect(0.5, 0.5, this.overlay.width - 1, this.overlay.height - 1)
    }
    if (!this.status.current) return
    const shown = this.facts.inspect ?? this.facts.pin
    const outline = (block, width, colour) => {
      const [left, top] = cellOrigin(grid, block)
      const size = grid.cell - grid.gap
      context.lineWidth = width
      context.strokeStyle = css(colour)
      context.strokeRect(left - width / 2, top - width / 2, size + width, size + width)
    }
    for (const mate of shown?.mates ?? []) outline(mate, Math.max(1, grid.ratio), theme.text)
    for (const question of ["pin", "inspect"]) {
      const block = this.blocks[question]
      if (block === null || block >= grid.count) continue
      outline(block, 2 * grid.ratio + 2, theme.page)
      outline(block, 2 * grid.ratio, question === "pin" ? theme.palette[1] : theme.text)
    }
  }

  // -- numbers: legend, description, and what a machine may read ----------------------------------

  tell() {
    const counts = { free: 0, used: 0, cached: 0, shared: 0, copied: 0, preempted: 0 }
    const states = [0, 0, 0, 0]
    const marks = [0, 0, 0]
    for (const cell of this.cells) {
      states[cell & 7] += 1
      marks[(cell >> 3) & 3] += 1
    }
    STATES.forEach((name, i) => (counts[name] = states[i]))
    MARKS.forEach((name, i) => name && (counts[name] = marks[i]))
    const data = this.canvas.dataset
    data.numBlocks = String(this.cells.length)
    data.seq = String(this.seq)
    data.step = String(this.step)
    data.counts = JSON.stringify(counts)
    data.columns = String(this.grid.columns)
    data.cell = String(this.grid.cell / this.grid.ratio)
    data.geometry = JSON.stringify(this.grid)
    this.showLegend(counts)
    // A screen reader that follows every frame would never stop.
    this.labelling ??= setTimeout(() => this.label(), this.labelled ? 1000 : 0)
    this.latest = counts
  }

  label() {
    this.labelling = null
    this.labelled = true
    const number = (n) => n.toLocaleString("en")
    const parts = STATES.map((name) => `${number(this.latest[name])} ${name}`).join(", ")
    const step = number(Math.max(0, this.step))
    const pool = `Block pool of ${number(this.cells.length)} blocks at step ${step}: ${parts}.`
    const text = this.status.current ? pool : `Block pool. ${this.status.text}`
    this.canvas.setAttribute("aria-label", text)
  }

  showLegend(counts) {
    const names = ["free", "used", "cached", "shared", "copied", "preempted"]
    const words = { copied: "just copied (CoW)", preempted: "just preempted" }
    if (!this.legendKey) {
      this.legendKey = Object.fromEntries(names.map((name) => [name, element("b")]))
      this.where = element("span", undefined, "where")
      this.legend.replaceChildren(
        this.where,
        ...names.map((name, i) => {
          const item = element("span")
          item.append(this.swatch(i), element("span", words[name] ?? name), this.legendKey[name])
          return item
        }),
      )
    }
    const number = (n) => n.toLocaleString("en")
    for (const name of names) this.legendKey[name].textContent = this.status.current ? number(counts[name]) : "–"
    const step = `step ${number(Math.max(0, this.step))}`
    this.where.textContent = this.status.current ? step : `last seen: ${step}`
  }

  swatch(index) {
    const ratio = devicePixelRatio || 1
    const canvas = document.createElement("canvas")
    const size = Math.round(22 * ratio)
    canvas.width = canvas.height = size
    canvas.style.width = canvas.style.height = "22px"
    const cell = SAMPLES[index]
    const grid = { columns: 1, cell: size, gap: 0, ratio }
    paintRich(canvas.getContext("2d"), grid, this.theme, 0, cell, true)
    return canvas
  }

  // -- pointing and pinning -------------------------------------------------------------------------

  point(block) {
    if (block === this.blocks.inspect) return
    this.blocks.inspect = block
    if (block === null) this.facts.inspect = null
    this.showTip("inspect")
    this.draw()
    // The last of a quick movement is what counts.
    this.asking ??= setTimeout(() => {
      this.asking = null
      this.socket.ask("inspect", this.blocks.inspect)
    }, 40)
  }

  pin(block) {
    this.blocks.pin = block === this.blocks.pin ? null : block
    this.facts.pin = null
    this.socket.ask("pin", this.blocks.pin)
    this.showTip("pin")
    this.draw()
  }

  key(event) {
    const { grid } = this
    if (!grid) return
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns }
    const at = this.blocks.inspect ?? this.blocks.pin ?? 0
    if (event.key in moves) {
      const next = at + moves[event.key]
      if (next >= 0 && next < grid.count) this.point(next)
    } else if (event.key === "Enter" || event.key === " ") this.pin(at)
    else if (event.key === "Escape") this.pin(null)
    else return
    event.preventDefault()
  }

  showTip(question) {
    const tip = this.tips[question]
    const facts = this.facts[question]
    tip.hidden = facts === null || facts.block !== this.blocks[question]
    if (tip.hidden) return
    fillTip(tip, facts, question === "pin" ? () => this.pin(null) : null)
    this.placeTips()
    this.draw()
  }

  placeTips() {
    if (!this.grid) return
    const origin = this.canvas.getBoundingClientRect()
    const size = this.grid.cell / this.grid.ratio
    for (const question of ["inspect", "pin"]) {
      const tip = this.tips[question]
      if (tip.hidden) continue
      const [x, y] = cellOrigin(this.grid, this.blocks[question]).map((n) => n / this.grid.ratio)
      const [left, top] = [origin.left + x, origin.top + y]
      placeTip(tip, { left, top, right: left + size, bottom: top + size })
    }
  }
}

function blockAtEvent(pool, event) {
  const box = pool.canvas.getBoundingClientRect()
  return pool.grid && blockAt(pool.grid, event.clientX - box.left, event.clientY - box.top)
}

const pools = new WeakMap()

// Streamlit calls this at each change of data or theme, and the returned function at the end.
export default function ({ data, parentElement }) {
  const theme = readTheme(parentElement.host ?? parentElement)
  if (pools.has(parentElement)) pools.get(parentElement).setTheme(theme)
  else pools.set(parentElement, new Pool(parentElement, data.path))
  return () => {
    pools.get(parentElement)?.close()
    pools.delete(parentElement)
  }
}
