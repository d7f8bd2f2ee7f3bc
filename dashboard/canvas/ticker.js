// The last events in plain sentences, newest first; each links to its step, block and request.

// Paths of 16 x 16: shapes of the page itself, since fonts lack half of such signs.
const LINE_ICONS = {
  preempted: "M4 4l8 8M12 4l-8 8",
  resumed: "M12.5 8a4.5 4.5 0 1 1-1.6-3.4M11.5 2v3h-3",
  copied: "M3 3h6.5v6.5H3zM6.5 9.5V13H13V6.5H9.5",
  forked: "M4 2.5V7l4 2.5v4M12 2.5V7L8 9.5",
  shared: "M3 5h10M3 8h10M3 11h10",
  evicted: "M4 8h8",
  finished: "M3 8.5l3.5 3.5L13 4.5",
  rejected: "M8 2.5a5.5 5.5 0 1 0 .01 0M4.2 4.2l7.6 7.6",
  missing: "M8 2.5v7M8 12v1.5",
}

class TickerView {
  // `act` has seq(number), block(number), request(id).
  constructor(root, act) {
    this.root = root
    this.act = act
    this.shown = new Map()
    this.show([])
  }

  show(lines) {
    if (!lines.length) {
      this.shown.clear()
      const text = "Nothing yet: preemptions, copies, forks, cache hits and finished requests are told here."
      this.root.replaceChildren(element("li", text, "quiet"))
      return
    }
    // Lines that stay keep their nodes, and with them focus and pointer.
    const nodes = new Map()
    const places = {}
    for (const line of lines) {
      const text = JSON.stringify(line)
      places[text] = (places[text] ?? 0) + 1
      const key = `${text}${places[text]}`
      nodes.set(key, this.shown.get(key) ?? this.line(line))
    }
    this.shown = nodes
    this.root.replaceChildren(...nodes.values())
  }

  line({ kind, seq, step, parts }) {
    const item = element("li")
    item.dataset.kind = kind
    const glyph = icon(LINE_ICONS[kind])
    glyph.classList.add("glyph")
    const text = element("span")
    if (step !== null) {
      const when = `step ${number(Math.max(0, step))}`
      text.append(link(when, `Go to ${when}`, () => this.act.seq(seq)), ": ")
    }
    for (const part of parts) {
      if (typeof part === "string") text.append(part)
      else if ("block" in part) {
        text.append(link(part.label, `Go there and pin ${part.label}`, () => this.act.block(part.block, seq)))
      } else {
        text.append(link(part.label, `Go there and select request ${part.request}`, () => this.act.request(part.request, seq)))
      }
    }
    item.append(glyph, text)
    return item
  }
}
