// Which reading colours the cells: one of all, kept by the browser.

const READING_KEY = "glasspool-reading"

class ReadingChoice {
  // `changed` is called when another one is taken.
  constructor(root, changed) {
    const kept = localStorage.getItem(READING_KEY)
    this.name = kept in READINGS ? kept : "state"
    this.changed = changed
    this.choices = Object.entries(READINGS).map(([name, { label, help }]) => {
      const choice = button(label, help, () => this.take(name), "choice")
      choice.setAttribute("role", "radio")
      choice.setAttribute("aria-label", label)
      choice.dataset.reading = name
      return choice
    })
    root.replaceChildren(element("span", "Colour", "quiet"), ...this.choices)
    this.mark()
  }

  get reading() {
    return READINGS[this.name]
  }

  take(name) {
    this.name = name
    localStorage.setItem(READING_KEY, name)
    this.mark()
    this.changed()
  }

  mark() {
    for (const choice of this.choices) {
      choice.setAttribute("aria-checked", String(choice.dataset.reading === this.name))
    }
  }
}
