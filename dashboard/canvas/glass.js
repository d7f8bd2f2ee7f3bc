// The component: one socket, and the parts that show what it says. One Glass lives in each element.

class Glass {
  constructor(root, data) {
    this.root = root.querySelector(".glass")
    this.theme = null
    this.moment = null
    this.figures = null
    this.listeners = new AbortController()
    const send = (message) => this.socket.send(message)
    this.player = new Player(this.root.querySelector(".player"), send)
    listenToKeys(this.player, this.listeners.signal)
    const act = {
      seq: (seq) => send({ do: "go", seq }),
      inspect: (block) => send({ inspect: block }),
      pin: (block) => send({ select: { block } }),
      block: (block, seq) => {
        if (seq !== undefined) send({ do: "go", seq })
        send({ select: { block } })
      },
      request: (request, seq) => {
        if (seq !== undefined) send({ do: "go", seq })
        send({ select: { request: request === this.moment?.request && seq === undefined ? null : request } })
      },
      close: () => send({ select: { block: null } }),
    }
    this.act = act
    this.banners = this.root.querySelector(".banners")
    this.panel = this.root.querySelector(".panel")
    this.pool = new PoolView(this.root, act)
    this.figuresView = new FiguresView(this.root.querySelector(".figures"), act)
    this.ticker = new TickerView(this.root.querySelector(".ticker"), act)
    this.use(data)
  }

  // What Python says: which session, whether the pool is shown or the player alone, and whether it
  // stands beside a page's text.
  use({ path, session, with_pool: withPool, beside }) {
    this.root.classList.toggle("bare", !withPool)
    this.root.classList.toggle("beside", beside)
    this.player.keepsAddress = !beside
    if (this.socket?.session === session) return
    this.socket?.close()
    this.socket = new PoolSocket(path, session, {
      open: () => this.pool.hover.ask(),
      text: (message) => this.take(message),
      cells: (frame) => this.pool.takeCells(frame),
      lost: (forgotten) => this.lost(forgotten),
    })
  }

  close() {
    this.socket.close()
    this.listeners.abort()
    this.player.close()
    this.pool.close()
  }

  setTheme(theme) {
    this.theme = theme
    this.pool.setTheme(theme)
    if (this.moment) this.showMoment(this.moment)
    if (this.figures) this.figuresView.show(this.figures, theme)
  }

  take(message) {
    if ("moment" in message) this.showMoment(message.moment)
    if ("figures" in message) {
      this.figures = message.figures
      this.figuresView.selected = this.moment?.request ?? null
      this.figuresView.show(this.figures, this.theme)
      this.figuresView.showBooks(this.books)
    }
    if ("books" in message) {
      this.books = message.books
      this.figuresView.showBooks(this.books)
      this.showBanners()
    }
    if ("ticker" in message) this.ticker.show(message.ticker)
    if ("track" in message) {
      this.player.scrubber.track = message.track
      this.player.scrubber.draw()
    }
    if ("inspect" in message) this.pool.setFacts(message.inspect)
    if ("pin" in message) this.showPin(message.pin)
    if ("selected" in message) {
      this.selected = message.selected
      this.pool.setSelected(this.selected?.blocks ?? [])
      this.showBanners()
    }
  }

  showMoment(moment) {
    this.moment = moment
    this.player.show(moment, this.theme)
    this.pool.setMoment(moment)
    this.showBanners()
  }

  showPin(facts) {
    this.panel.hidden = facts === null
    this.root.classList.toggle("pinned", facts !== null)
    this.pool.setPinned(facts?.block ?? null, facts?.mates ?? [])
    if (facts) fillPanel(this.panel, facts, this.act)
  }

  // Everything a viewer must know before believing what is shown.
  showBanners() {
    const { moment, selected, books } = this
    if (!moment) return
    const lines = []
    const recorded = moment.recorded
    if (!moment.trusted) {
      const bad = moment.phase === "lost" || moment.phase === "failed"
      const rest = moment.live || recorded ? "" : " What is shown here is its past."
      lines.push([bad ? "bad" : "warn", moment.text + rest])
    } else if (moment.phase === "reading") lines.push(["info", moment.text])
    if (moment.warning) lines.push(["warn", moment.warning])
    if (moment.gap && moment.current) lines.push(["warn", moment.gap])
    if (moment.notice) lines.push(["info", moment.notice])
    if (books?.count && moment.current) {
      lines.push(["bad", `Broken rules at step ${number(books.step)}: ${books.faults.join("; ")}`])
    }
    if (selected) {
      const held = selected.blocks.length
      const text = held ? `holds ${plural(held, "block")} at this step` : "holds no block at this step"
      lines.push(["info", `Request ${selected.label} ${text}.`, () => this.act.request(selected.request)])
    }
    const key = JSON.stringify(lines.map(([tone, text]) => [tone, text]))
    if (key === this.bannersShown) return
    this.bannersShown = key
    this.banners.replaceChildren(
      ...lines.map(([tone, text, clear]) => {
        const line = element("p", text)
        line.dataset.tone = tone
        if (clear) line.append(button("✕", "End the selection", clear, "close"))
        return line
      }),
    )
    this.pool.layout()
  }

  lost(forgotten) {
    const text = forgotten
      ? "The dashboard's server was restarted: reload the page."
      : "The dashboard's server does not answer."
    this.take({ figures: null })
    this.showMoment({ ...(this.moment ?? NOTHING), text, phase: "lost", trusted: false, current: false, live: true })
  }
}

const NOTHING = {
  source: "", recorded: false, warning: null, knows: [], playing: false, speed: 1, seq: -1, step: -1,
  seconds: 0, ago: 0, oldest: -1, newest: -1, notice: null, gap: null, block: null, request: null,
}

const glasses = new WeakMap()

// Streamlit calls this at each change of data or theme, and the returned function at the end.
export default function ({ data, parentElement }) {
  let glass = glasses.get(parentElement)
  if (glass) glass.use(data)
  else glasses.set(parentElement, (glass = new Glass(parentElement, data)))
  glass.setTheme(readTheme(parentElement.host ?? parentElement))
  return () => {
    glasses.get(parentElement)?.close()
    glasses.delete(parentElement)
  }
}
