// The connection to the server's cells, kept up for as long as the canvas is on the page.

class PoolSocket {
  // `on.text(message)`, `on.cells(frame)` and `on.lost()` are called as things happen.
  constructor(path, on) {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:"
    this.url = `${scheme}//${location.host}${path}`
    this.on = on
    this.wait = 250
    this.closed = false
    this.asked = {}
    this.open()
  }

  open() {
    const socket = new WebSocket(this.url)
    socket.binaryType = "arraybuffer"
    socket.onopen = () => {
      this.wait = 250
      for (const [name, block] of Object.entries(this.asked)) this.send({ [name]: block })
    }
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") this.on.text(JSON.parse(data))
      else this.on.cells(decodeCells(data))
    }
    socket.onclose = () => {
      if (this.closed) return
      this.on.lost()
      this.timer = setTimeout(() => this.open(), this.wait)
      this.wait = Math.min(this.wait * 2, 5000)
    }
    this.socket = socket
  }

  // `question` is "inspect" or "pin"; `block` null ends it. Asked again after a reconnect.
  ask(question, block) {
    this.asked[question] = block
    this.send({ [question]: block })
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
  const start = 32
  return {
    numBlocks: view.getUint32(4, true),
    seq: view.getFloat64(16, true),
    step: view.getFloat64(24, true),
    blocks: whole ? null : new Uint32Array(buffer, start, count),
    values: new Uint32Array(buffer, whole ? start : start + 4 * count, count),
  }
}
