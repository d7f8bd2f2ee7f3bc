// Small helpers for the DOM. Everything is set as text: it may come from a prompt.

const element = (name, text, className) => {
  const node = document.createElement(name)
  if (text !== undefined && text !== null) node.textContent = text
  if (className) node.className = className
  return node
}

const button = (text, label, onClick, className) => {
  const node = element("button", text, className)
  node.type = "button"
  node.title = label
  node.setAttribute("aria-label", label)
  node.onclick = onClick
  return node
}

// A link without an address: it acts on this page.
const link = (text, label, onClick) => button(text, label, onClick, "link")

// A line icon of 16 x 16, from SVG path data.
const icon = (path) => {
  const space = "http://www.w3.org/2000/svg"
  const svg = document.createElementNS(space, "svg")
  svg.setAttribute("viewBox", "0 0 16 16")
  svg.setAttribute("aria-hidden", "true")
  const line = document.createElementNS(space, "path")
  line.setAttribute("d", path)
  svg.append(line)
  return svg
}

const number = (value) => value.toLocaleString("en")
const plural = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`

// Seconds as people say them: 8 s, 3 min 20 s, 2 h 5 min.
function duration(seconds) {
  const s = Math.round(seconds)
  if (s < 60) return `${s} s`
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`
}

// Calls `act` at most once a frame, however often it is asked to.
function onceAFrame(act) {
  let waiting = 0
  const ask = () => {
    waiting ||= requestAnimationFrame(() => {
      waiting = 0
      act()
    })
  }
  ask.cancel = () => cancelAnimationFrame(waiting)
  return ask
}
