// Pointer, wheel and keys on the cells: what they point at, pin, zoom and move.

const DRAG_SLOP = 4 // CSS pixels that a click may move

class Pointing {
  // `pool` is the PoolView that is pointed at; it has no view before its first cells.
  constructor(pool) {
    this.pool = pool
    this.canvas = pool.canvas
    this.grabbed = null
    this.listeners = new AbortController()
    const { signal } = this.listeners
    const on = (name, act, options) => this.canvas.addEventListener(name, act, { signal, ...options })
    on("pointerdown", (e) => this.grab(e))
    on("pointermove", (e) => this.drag(e) || pool.point(this.blockOf(e)))
    on("pointerup", (e) => this.drop(e))
    on("pointercancel", () => (this.grabbed = null))
    on("pointerleave", () => pool.point(null))
    on("wheel", (e) => this.wheel(e), { passive: false })
    on("keydown", (e) => this.key(e))
    on("blur", () => pool.point(null))
  }

  close() {
    this.listeners.abort()
  }

  // Where on the canvas, in its pixels.
  place(event) {
    const box = this.canvas.getBoundingClientRect()
    return [event.clientX - box.left, event.clientY - box.top].map((n) => n * this.pool.grid.ratio)
  }

  blockOf(event) {
    return this.pool.view ? this.pool.view.blockAt(...this.place(event)) : null
  }

  // The wheel scrolls the page, as everywhere, unless the pool has the focus or Ctrl is held.
  wheel(event) {
    const { view } = this.pool
    const focused = this.canvas.getRootNode().activeElement === this.canvas
    if (!view || !(event.ctrlKey || event.metaKey || focused || view.zoomed)) return
    event.preventDefault()
    this.pool.zoom(Math.exp(-event.deltaY / 400), ...this.place(event))
  }

  grab(event) {
    const { view } = this.pool
    if (event.button !== 0 || !view) return
    this.grabbed = { x: event.clientX, y: event.clientY, left: view.left, top: view.top, moved: false }
  }

  // True while a drag goes on.
  drag(event) {
    const { grabbed, pool } = this
    if (!grabbed) return false
    const [dx, dy] = [event.clientX - grabbed.x, event.clientY - grabbed.y]
    if (!grabbed.moved && Math.hypot(dx, dy) < DRAG_SLOP) return false
    if (!grabbed.moved) this.canvas.setPointerCapture(event.pointerId)
    grabbed.moved = true
    pool.point(null)
    pool.moveTo(grabbed.left - dx * pool.grid.ratio, grabbed.top - dy * pool.grid.ratio)
    return true
  }

  drop(event) {
    const { grabbed } = this
    this.grabbed = null
    if (grabbed && !grabbed.moved) this.pool.pin(this.blockOf(event))
  }

  key(event) {
    const { pool } = this
    const { grid } = pool
    if (!grid || event.ctrlKey || event.metaKey || event.altKey) return
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns }
    const { cursor } = pool
    const at = cursor ?? pool.pinned ?? 0
    if (event.key in moves) {
      const next = cursor === null ? at : at + moves[event.key]
      if (next >= 0 && next < grid.count) {
        pool.point(next)
        pool.reveal(next)
      }
    } else if (event.key === "Enter" || event.key === " ") pool.pin(at)
    else if (event.key === "Escape") pool.unpin()
    else if (event.key === "+" || event.key === "=") pool.zoom(1.6, ...this.middleOf(at))
    else if (event.key === "-") pool.zoom(1 / 1.6, ...this.middleOf(at))
    else if (event.key === "0") pool.unzoom()
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  middleOf(block) {
    const { view } = this.pool
    const [x, y] = view.origin(block)
    return [x + view.cell / 2, y + view.tall / 2]
  }
}
