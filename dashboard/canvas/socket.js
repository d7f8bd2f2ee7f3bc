// The connection to the session's moment, kept up for as long as the component is on the page.

const NO_SESSION = 4404 // see dashboard/pool_socket.py

class PoolSocket {
  // `on.text(message)`, `on.cells(frame)`, `on.open()` and `on.lost(forgotten)` are called as things happen.
  constructor(path, session, on) {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:"
    this.url = `${scheme}//${location.host}${path}?session=${encodeURIComponent(session)}`
    this.session = session
    this.on = on
    this.wait = 250
    this.closed = false
    this.open()
  }

  open() {
    const socket = new WebSocket(this.url)
    socket.binaryType = "arraybuffer"
    socket.onopen = () => {
      this.wait = 250
      this.on.open()
    }
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") this.on.text(JSON.parse(data))
      else this.on.cells(decodeCells(data))
    }
    socket.onclose = ({ code }) => {
      if (this.closed) return
      this.on.lost(code === NO_SESSION)
      this.timer = setTimeout(() => this.open(), this.wait)
      this.wait = Math.min(this.wait * 2, 5000)
    }
    this.socket = socket
  }

  send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message))
  }

  close() {
    this.closed = true
    clearTimeout(this.timer)
    this.socket.close()
  }
}

// A binary frame as dashboard/pool_socket.py describes it; `blocks` is null where all are there.
function decodeCells(buffer) {
  const view = new DataView(buffer)
  const whole = view.getUint32(0, true) === 0
  const count = view.getUint32(8, true)
  const flashes = view.getUint32(12, true)
  const start = 32
  const words = start + (whole ? 0 : 4 * count)
  return {
    numBlocks: view.getUint32(4, true),
    seq: view.getFloat64(16, true),
    step: view.getFloat64(24, true),
    blocks: whole ? null : new Uint32Array(buffer, start, count),
    words: new Uint32Array(buffer, words, 3 * count),
    flashes: new Int32Array(buffer, words + 12 * count, 3 * flashes),
  }
}
