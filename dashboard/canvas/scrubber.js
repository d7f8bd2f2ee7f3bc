// The way through the past: the pool's composition over all records that are kept, with marks where
// sequences were preempted, and the moment as a handle. A slider for pointer and keyboard.

class Scrubber {
  // `act` has go(seq) and step(by).
  constructor(canvas, act) {
    this.canvas = canvas
    this.act = act
    this.track = null
    this.moment = null
    this.dragging = false
    canvas.onpointerdown = (event) => {
      if (event.button !== 0 || !this.track) return
      canvas.setPointerCapture(event.pointerId)
      this.dragging = true
      this.seek(event)
    }
    canvas.onpointermove = (event) => {
      this.hover = this.fractionAt(event)
      if (this.dragging) this.seek(event)
      this.draw()
    }
    canvas.onpointerup = canvas.onpointercancel = () => {
      this.dragging = false
      this.dragged = null
      this.draw()
    }
    canvas.onpointerleave = () => {
      this.hover = null
      this.draw()
    }
    // Not at each pixel of a movement: the last of a frame is what counts.
    this.send = onceAFrame(() => this.act.go(this.wanted))
    this.draw = onceAFrame(() => this.paint())
  }

  close() {
    this.send.cancel()
    this.draw.cancel()
  }

  get span() {
    const { oldest, newest } = this.moment ?? { oldest: 0, newest: 0 }
    return Math.max(1, newest - oldest)
  }

  fractionAt(event) {
    const box = this.canvas.getBoundingClientRect()
    return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width))
  }

  seek(event) {
    this.wanted = this.dragged = Math.round(this.moment.oldest + this.fractionAt(event) * this.span)
    this.send()
  }

  show(moment, theme) {
    this.moment = moment
    this.theme = theme
    const { canvas } = this
    canvas.setAttribute("aria-valuemin", String(moment.oldest))
    canvas.setAttribute("aria-valuemax", String(moment.newest))
    canvas.setAttribute("aria-valuenow", String(moment.live ? moment.newest : moment.seq))
    const step = `step ${number(Math.max(0, moment.step))}`
    canvas.setAttribute("aria-valuetext", moment.live ? `live, ${step}` : step)
    this.draw()
  }

  paint() {
    const { canvas, track, moment, theme } = this
    if (!moment || !theme) return
    const ratio = devicePixelRatio || 1
    const [width, height] = [canvas.clientWidth * ratio, canvas.clientHeight * ratio].map(Math.round)
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height })
    const context = canvas.getContext("2d")
    context.clearRect(0, 0, width, height)
    const foot = Math.round(7 * ratio)
    const tall = height - foot
    context.fillStyle = css(mix(theme.text, theme.page, 0.05))
    context.fillRect(0, 0, width, height)
    if (track) this.paintTrack(context, width, tall, height, ratio)
    const at = (moment.live ? 1 : (this.dragged ?? moment.seq) - moment.oldest) / (moment.live ? 1 : this.span)
    const x = Math.round(Math.max(0, Math.min(1, at)) * (width - 2 * ratio)) + ratio
    if (!moment.live) {
      // What lies ahead of the moment is not known there.
      context.fillStyle = `rgb(${theme.page.join(" ")} / 55%)`
      context.fillRect(x, 0, width - x, height)
    }
    if (this.hover !== null && this.hover !== undefined) {
      context.fillStyle = css(mix(theme.text, theme.page, 0.4))
      context.fillRect(Math.round(this.hover * width), 0, ratio, height)
    }
    context.fillStyle = css(theme.page)
    context.fillRect(x - 2.5 * ratio, 0, 5 * ratio, height)
    context.fillStyle = css(theme.text)
    context.fillRect(x - 1 * ratio, 0, 2 * ratio, height)
    context.beginPath()
    context.moveTo(x - 5 * ratio, 0)
    context.lineTo(x + 5 * ratio, 0)
    context.lineTo(x, 6 * ratio)
    context.fill()
  }

  // `track` may be a second old: it is drawn over the part of the span that it covers.
  paintTrack(context, width, tall, height, ratio) {
    const { track, moment, theme } = this
    const buckets = track.active.length
    const first = (track.oldest - moment.oldest) / this.span
    const share = (track.newest - track.oldest) / this.span
    const left = (i) => Math.round(width * (first + (share * i) / buckets))
    for (let i = 0; i < buckets; i += 1) {
      const [from, to] = [left(i), left(i + 1)]
      if (track.active[i] < 0) continue
      const active = Math.round((tall * track.active[i]) / 1000)
      const cached = Math.round((tall * track.cached[i]) / 1000)
      context.fillStyle = css(theme.palette[2])
      context.fillRect(from, tall - active - cached, to - from, cached)
      context.fillStyle = css(theme.palette[1])
      context.fillRect(from, tall - active, to - from, active)
    }
    context.fillStyle = css(theme.palette[5])
    for (const [i] of track.marks) {
      context.fillRect(left(i), tall + ratio, Math.max(2 * ratio, left(i + 1) - left(i)), height - tall - ratio)
    }
    context.fillStyle = css(theme.text)
    for (const i of track.holes) {
      for (let y = 0; y < height; y += 6 * ratio) context.fillRect(left(i), y, ratio, 3 * ratio)
    }
  }
}
