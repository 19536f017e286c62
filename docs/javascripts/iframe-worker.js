// Browsers start no worker for a page that was opened from disk, and the search is one. There a frame
// stands in for it. Zensical would load a script for this from a CDN; a file with this name keeps it
// from doing so.
if (location.protocol === "file:") {
  window.Worker = class {
    #frame = document.createElement("iframe")
    #ready

    constructor(url) {
      this.#ready = new Promise((resolve) => {
        this.#frame.onload = () => {
          const inside = this.#frame.contentWindow
          inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }))
          const script = inside.document.createElement("script")
          script.onload = () => resolve(inside)
          script.onerror = (event) => this.onerror?.(event)
          script.src = url
          inside.document.head.append(script)
        }
      })
      this.#frame.hidden = true
      this.#frame.srcdoc = "<!doctype html><title>search</title>"
      document.body.append(this.#frame)
    }

    postMessage(data) {
      this.#ready.then((inside) => inside.onmessage?.({ data }))
    }

    terminate() {
      this.#frame.remove()
    }
  }
}
