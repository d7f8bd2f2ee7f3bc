// The figures beside the pool, the pool's composition as a bar, and who holds most of it.

class FiguresView {
  // `act` has request(id).
  constructor(root, act) {
    this.root = root
    this.act = act
    this.values = new Map()
    this.layout = ""
  }

  // `figures` as dashboard/viewer.py tells them, null where nothing may be shown.
  show(figures, theme) {
    this.root.dataset.step = figures ? String(figures.step) : ""
    if (!figures) {
      this.layout = ""
      this.root.replaceChildren(element("p", "No figures: nothing here is known as of now.", "quiet"))
      return
    }
    const layout = JSON.stringify(figures.groups.map(({ figures: all }) => all.map((f) => f.label)))
    if (layout !== this.layout) this.build(figures, layout)
    this.showBar(figures.bar, theme)
    for (const group of figures.groups) {
      for (const figure of group.figures) {
        const row = this.values.get(figure.label)
        if (row.value.textContent !== figure.value) row.value.textContent = figure.value
        row.node.dataset.tone = figure.tone
        row.help = figure.help
      }
    }
    this.showHolders(figures.holders, theme)
  }

  build(figures, layout) {
    this.layout = layout
    this.values.clear()
    this.bar = element("div", undefined, "bar")
    this.bar.setAttribute("role", "img")
    this.holders = element("div", undefined, "holders")
    this.verdict = element("div", undefined, "books")
    const groups = figures.groups.map((group) => {
      const box = element("section", undefined, "group")
      box.append(element("h3", group.name))
      for (const figure of group.figures) box.append(this.row(figure))
      return box
    })
    this.root.replaceChildren(this.bar, ...groups, this.holders, this.verdict)
  }

  // One figure. Its help is a tooltip for pointer and keyboard alike.
  row(figure) {
    const node = element("div", undefined, "figure")
    node.tabIndex = 0
    const value = element("b", figure.value)
    node.append(element("span", figure.label), value)
    const row = { node, value, help: figure.help }
    this.values.set(figure.label, row)
    helpOn(node, () => row.help)
    return node
  }

  showBar(bar, theme) {
    this.bar.hidden = !bar
    if (!bar) return
    const order = ["used", "shared", "cached", "free"]
    const percent = (name) => `${(100 * bar[name]).toFixed(0)} % ${name}`
    this.bar.setAttribute("aria-label", `The pool: ${order.map(percent).join(", ")}`)
    this.bar.replaceChildren(
      ...order.map((name) => {
        const part = element("i")
        part.style.flexGrow = bar[name]
        part.style.background = css(theme.palette[STATES.indexOf(name)])
        part.title = percent(name)
        return part
      }),
    )
  }

  showHolders(holders, theme) {
    this.holders.hidden = !holders?.length
    if (!holders?.length) return
    const most = Math.max(1, ...holders.map(({ blocks }) => blocks))
    const rows = holders.map((holder) => {
      const label = `Select request ${holder.label}, which holds ${plural(holder.blocks, "block")}`
      const row = button("", label, () => this.act.request(holder.request), "holder")
      const strip = element("i")
      strip.style.background = css(theme.owners[holder.colour - 1])
      strip.style.width = `${Math.max(3, (46 * holder.blocks) / most)}px`
      const track = element("span", undefined, "track")
      track.append(strip)
      row.append(track, element("span", holder.label, "name"), element("b", number(holder.blocks)))
      row.setAttribute("aria-pressed", String(holder.request === this.selected))
      return row
    })
    // Not while one of them has the focus: it would be lost.
    if (!this.holders.contains(this.root.getRootNode().activeElement)) {
      this.holders.replaceChildren(element("h3", "Most blocks held by"), ...rows)
    }
  }

  showBooks(books) {
    if (!this.verdict || !books) return
    const at = `step ${number(Math.max(0, books.step))}`
    const good = books.count === 0
    this.verdict.dataset.tone = good ? "good" : "bad"
    this.verdict.textContent = good
      ? `✓ books balance at ${at}`
      : `✕ ${plural(books.count, "broken rule")} at ${at}: ${books.faults.join("; ")}`
    this.verdict.tabIndex = 0
    helpOn(
      this.verdict,
      () =>
        "Conservation check: free, cached and active blocks sum to the pool, every ref count is the " +
        "number of table entries, every table fits its tokens, no block holds more than its slots.",
    )
  }
}

// Shows `help()` beside a node while it has the pointer or the focus.
function helpOn(node, help) {
  const tip = () => node.getRootNode().querySelector(".tip.help")
  const show = () => {
    const box = tip()
    box.textContent = help()
    box.hidden = false
    placeTip(box, node.getBoundingClientRect())
    node.setAttribute("aria-describedby", box.id)
  }
  const hide = () => {
    if (tip()) tip().hidden = true
    node.removeAttribute("aria-describedby")
  }
  node.onpointerenter = node.onfocus = show
  node.onpointerleave = node.onblur = hide
}
