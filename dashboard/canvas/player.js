// The player: which moment is shown, and the ways to another one. It commands the session.

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8, 16] // see dashboard/session.py
const JUMPS = {
  preemptions: "preemption",
  copies: "copy-on-write",
  evictions: "eviction",
  forks: "fork",
  arrivals: "arrival",
  finishes: "finish",
  rejections: "rejection",
}
const ICONS = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M3.5 2.5h3v11h-3zM9.5 2.5h3v11h-3z",
  back: "M11.5 3v10l-6-5zM3.5 3h1.6v10H3.5z",
  on: "M4.5 3v10l6-5zM10.9 3h1.6v10h-1.6z",
  previous: "M10 2.5 4.5 8l5.5 5.5",
  next: "M6 2.5 11.5 8 6 13.5",
}

class Player {
  // `send(message)` goes to the session.
  constructor(root, send) {
    this.root = root
    this.send = (message) => send(message)
    this.moment = null
    this.keepsAddress = true
    const scrubber = root.querySelector(".scrubber")
    this.scrubber = new Scrubber(scrubber, {
      go: (seq) => this.go(seq),
    })
    this.build(root.querySelector(".controls"))
  }

  close() {
    this.scrubber.close()
  }

  build(bar) {
    const iconButton = (name, label, act, className) => {
      const node = button("", label, act, className)
      node.append(icon(ICONS[name]))
      return node
    }
    this.playButton = button("", "Play", () => this.toggle(), "play")
    this.speed = element("select")
    this.speed.setAttribute("aria-label", "Speed of playing")
    this.speed.title = "Speed of playing, of the recorded pace"
    this.speed.append(
      ...SPEEDS.map((speed) => {
        const option = element("option", `${speed}×`)
        option.value = String(speed)
        return option
      }),
    )
    this.speed.onchange = () => this.send({ do: "speed", speed: Number(this.speed.value) })
    this.kind = element("select", undefined, "kind")
    this.kind.setAttribute("aria-label", "Kind of event to jump to")
    this.kind.title = "Kind of event to jump to"
    this.kind.append(
      ...Object.entries(JUMPS).map(([column, name]) => {
        const option = element("option", name)
        option.value = column
        return option
      }),
    )
    const jump = element("span", undefined, "together")
    jump.append(
      iconButton("previous", "Jump to the event of this kind before", () => this.jump(this.kind.value, false), "line"),
      this.kind,
      iconButton("next", "Jump to the next event of this kind", () => this.jump(this.kind.value, true), "line"),
    )
    const steps = element("span", undefined, "together")
    steps.append(
      iconButton("back", "One record back (←)", () => this.step(-1)),
      this.playButton,
      iconButton("on", "One record on (→)", () => this.step(1)),
    )
    this.badge = element("span", undefined, "badge")
    this.badge.setAttribute("role", "status")
    this.where = element("span", undefined, "where")
    this.liveButton = button("Live", "Back to now (L)", () => this.live(), "golive")
    this.share = button("Share", "Copy a link to exactly this view", () => this.copyLink(), "share")
    const help = element("details", undefined, "keys")
    const summary = element("summary", "Keys")
    summary.title = "Keys of the player"
    const sheet = element("div", undefined, "sheet")
    sheet.append(keyTable())
    help.append(summary, sheet)
    bar.append(this.badge, this.liveButton, this.where, element("span", undefined, "space"), steps, this.speed, jump, this.share, help)
  }

  show(moment, theme) {
    this.moment = moment
    this.scrubber.show(moment, theme)
    const { live, recorded, playing } = moment
    this.root.dataset.mode = live ? "live" : recorded ? "recorded" : "rewound"
    const trusted = moment.trusted || !live
    this.root.dataset.trusted = String(trusted)
    let badge = "Live"
    if (live && !trusted) badge = moment.phase === "gap" ? "Gap" : moment.phase === "connecting" ? "Connecting" : "Not connected"
    else if (!live) badge = recorded ? "Recorded" : "Rewound"
    this.badge.textContent = badge
    const step = `step ${number(Math.max(0, moment.step))}`
    let where = step
    if (live && !moment.trusted) where = `last seen: ${step}`
    if (!live && recorded) where = `${step}, ${moment.seconds.toFixed(1)} s in${moment.ago ? `, ${duration(moment.ago)} to the end` : ", the end"}`
    if (!live && !recorded) where = `${step}, ${duration(moment.ago)} ago`
    this.where.textContent = where
    this.liveButton.hidden = live || recorded
    const shown = playing ? "pause" : "play"
    if (this.playButton.dataset.shown !== shown + live) {
      this.playButton.dataset.shown = shown + live
      this.playButton.replaceChildren(icon(ICONS[live ? "pause" : shown]))
      const label = live ? "Stop here (Space)" : playing ? "Pause (Space)" : "Play (Space)"
      this.playButton.title = label
      this.playButton.setAttribute("aria-label", label)
    }
    if (document.activeElement !== this.speed) this.speed.value = String(moment.speed)
    this.keepAddress()
  }

  toggle() {
    this.send({ do: this.moment?.playing || this.moment?.live ? "pause" : "play" })
  }

  step(by) {
    this.send({ do: "step", by })
  }

  first() {
    if (this.moment) this.go(this.moment.oldest)
  }

  live() {
    this.send({ do: "live" })
  }

  go(seq) {
    this.send({ do: "go", seq })
  }

  jump(to, forward) {
    this.kind.value = to
    this.send({ do: "jump", to, forward })
  }

  faster(by) {
    const at = SPEEDS.indexOf(this.moment?.speed ?? 1) + by
    if (SPEEDS[at]) this.send({ do: "speed", speed: SPEEDS[at] })
  }

  // The query that leads to exactly this view: source, record, selection.
  query() {
    const { source, live, playing, seq, block, request } = this.moment
    const query = new URLSearchParams({ source })
    if (!live && !playing) query.set("seq", String(seq))
    if (block !== null) query.set("block", String(block))
    if (request !== null) query.set("request", request)
    return query.toString()
  }

  // The address follows the view, without an entry in the browser's history for each step.
  keepAddress() {
    if (!this.keepsAddress) return
    const query = this.query()
    if (query === this.kept) return
    this.kept = query
    clearTimeout(this.keeping)
    this.keeping = setTimeout(() => history.replaceState(history.state, "", `?${query}${location.hash}`), 200)
  }

  async copyLink() {
    const moment = this.moment
    if (!moment) return
    const query = new URLSearchParams(this.query())
    query.set("seq", String(moment.seq)) // what is seen now, although it may be live
    const address = `${location.origin}${location.pathname}?${query}`
    try {
      await navigator.clipboard.writeText(address)
      this.share.textContent = "Copied"
    } catch {
      this.share.textContent = "In the address bar" // no clipboard on a page that is not secure
      history.replaceState(history.state, "", address)
    }
    setTimeout(() => (this.share.textContent = "Share"), 1600)
  }
}
