// The search index of mdBook splits text at spaces and drops what is no Latin letter, so it finds no Chinese. Queries with other
// letters are looked up in the text of the pages instead: a page matches if it has all words of the query.
(() => {
    "use strict";
    const latin = /^[\u0000-\u024f]*$/;

    function search(index, query) {
        const words = query.toLowerCase().split(/\s+/).filter(Boolean);
        const found = [];
        for (const [ref, page] of Object.entries(index.documentStore.docs)) {
            const [title, body] = [page.title.toLowerCase(), page.body.toLowerCase()];
            if (words.every((word) => title.includes(word) || body.includes(word))) {
                const inTitle = words.filter((word) => title.includes(word)).length;
                found.push({ ref, doc: page, score: 1 + inTitle });
            }
        }
        return found.sort((a, b) => b.score - a.score);
    }

    function extend(elasticlunr) {
        const load = elasticlunr.Index.load;
        elasticlunr.Index.load = (data) => {
            const index = load.call(elasticlunr.Index, data);
            const original = index.search.bind(index);
            index.search = (query, options) => latin.test(query) ? original(query, options) : search(index, query);
            return index;
        };
    }

    // It is loaded before or after this file.
    if (window.elasticlunr) {
        extend(window.elasticlunr);
    } else {
        let loaded;
        Object.defineProperty(window, "elasticlunr", {
            configurable: true,
            get: () => loaded,
            set: (elasticlunr) => { extend(elasticlunr); loaded = elasticlunr; },
        });
    }
})();
