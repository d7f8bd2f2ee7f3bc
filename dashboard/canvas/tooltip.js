// What is said about the block under the pointer, beside it.

const stateWords = (facts) =>
  facts.state + ({ lost: ", just lost by a preemption", copied: ", just copied" }[facts.mark] ?? "")

// Term and text of each fact, for the tooltip and the pinned panel alike. `act` links requests.
function blockFacts(facts, act) {
  const rows = []
  for (const owner of facts.owners) {
    const request = act
      ? link(`request ${shortName(owner.request)}`, `Select request ${owner.request}`, () => act.request(owner.request))
      : `request ${owner.request}`
    rows.push(["owner", [request, `, sequence ${owner.sequence}, index ${owner.index} of ${owner.blocks}`]])
  }
  if (facts.more_owners) rows.push(["", [`and ${facts.more_owners} more owners`]])
  if (!facts.owners.length) rows.push(["owner", ["none"]])
  rows.push(["ref count", [String(facts.ref_count ?? "unknown")]])
  const fill = facts.filled === null ? "unknown" : `${facts.filled} of ${facts.block_size} slots`
  rows.push(["fill", [fill]])
  if (facts.cached_as) rows.push(["prefix cache", [facts.cached_as]])
  rows.push(["last change", [changeText(facts)]])
  return rows
}

function changeText({ last_change: last, changed_at: at }) {
  if (last < 0) return "never used"
  return at ? `step ${number(at.step)}` : `record ${number(last)}`
}

const shortName = (name) => (name.length <= 16 ? name : `${name.slice(0, 10)}…${name.slice(-5)}`)

function definitionList(rows) {
  const list = element("dl")
  for (const [term, parts] of rows) {
    const text = element("dd")
    text.append(...parts)
    list.append(element("dt", term), text)
  }
  return list
}

function fillTip(tip, facts, lens) {
  const title = element("div", `Block ${facts.block}: ${stateWords(facts)}`, "title")
  tip.replaceChildren(title, definitionList(blockFacts(facts)))
  if (facts.text) tip.append(element("div", facts.text, "text"))
  if (lens) tip.append(lens)
}

// Beside the cell at `box` (viewport pixels), inside the window.
function placeTip(tip, box) {
  const margin = 8
  const { offsetWidth: width, offsetHeight: height } = tip
  let left = box.right + margin
  if (left + width > innerWidth - margin) left = box.left - width - margin
  left = Math.max(margin, Math.min(left, innerWidth - width - margin))
  const top = Math.max(margin, Math.min(box.top, innerHeight - height - margin))
  tip.style.left = `${left}px`
  tip.style.top = `${top}px`
}
