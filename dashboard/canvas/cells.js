// The three words of each block as of record `seq`, and the place of its colour in a reading.

class Cells {
  constructor() {
    this.seq = this.step = undefined
    this.resize(0)
  }

  get count() {
    return this.indices.length
  }

  resize(count) {
    this.words = [0, 1, 2].map(() => new Uint32Array(count))
    this.indices = new Uint8Array(count)
    this.changed = new Set()
  }

  // True where the pool has another size than before. `blocks` is null where all are told.
  take({ numBlocks, seq, step, blocks, words }) {
    const resized = numBlocks !== this.count
    if (resized) this.resize(numBlocks)
    const [cells, details, changes] = this.words
    const count = words.length / 3
    for (let i = 0; i < count; i += 1) {
      const block = blocks === null ? i : blocks[i]
      cells[block] = words[3 * i]
      details[block] = words[3 * i + 1]
      changes[block] = words[3 * i + 2]
      if (blocks !== null) this.changed.add(block)
    }
    this.seq = seq
    this.step = step
    return resized
  }

  // Each block's colour anew; gives the blocks that have to be painted again.
  read({ index }) {
    const [cells, details, changes] = this.words
    const repaint = this.changed
    this.changed = new Set()
    for (let block = 0; block < cells.length; block += 1) {
      const at = index(cells[block], details[block], changes[block], this.seq)
      if (at !== this.indices[block]) {
        this.indices[block] = at
        repaint.add(block)
      }
    }
    return repaint
  }

  // How many blocks have each of the reading's colours.
  colourCounts({ legend }) {
    const counts = new Uint32Array(legend.length)
    for (let block = 0; block < this.count; block += 1) counts[this.indices[block]] += 1
    return counts
  }

  // Blocks by state, marks apart: what the canvas holds, whatever it is coloured by.
  stateCounts() {
    const kinds = new Uint32Array(32)
    const cells = this.words[0]
    for (let block = 0; block < cells.length; block += 1) kinds[cells[block] & 31] += 1
    const counts = { free: 0, used: 0, cached: 0, shared: 0, copied: 0, preempted: 0 }
    kinds.forEach((count, kind) => {
      if (!count) return
      counts[STATES[stateOf(kind)]] += count
      if (markOf(kind)) counts[MARKS[markOf(kind)]] += count
    })
    return counts
  }
}
