/*
 * curl goroutines|threads CROWD CALLS URL BYTES [CERTIFICATE]: libcurl's easy interface, which blocks. Each client
 * fetches the URL again and again over its own connections, and gets a given number of bytes. The URL's host is a name, so the
 * threaded resolver starts a thread for it.
 */
#include "crowd.h"

#include <curl/curl.h>

struct got {
    size_t n;
    unsigned sum;
};

static size_t take(char *data, size_t one, size_t n, void *arg)
{
    struct got *got = arg;
    for (size_t i = 0; i < one * n; i++)
        got->sum = got->sum * 31 + (unsigned char)data[i];
    got->n += one * n;
    return one * n;
}

static unsigned expected;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static CURL *handle(const char *url, struct got *got)
{
    CURL *c = curl_easy_init();
    MUST(c != NULL, "no handle");
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_TIMEOUT, 120L);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, got);
    curl_easy_setopt(c, CURLOPT_IPRESOLVE, (long)CURL_IPRESOLVE_V4);
    if (arguments[1] && arguments[2])
        curl_easy_setopt(c, CURLOPT_CAINFO, arguments[2]);
    return c;
}

static unsigned fetch(CURL *c, struct got *got)
{
    *got = (struct got){0, 0};
    CURLcode r = curl_easy_perform(c);
    long status = 0;
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    MUST(r == CURLE_OK && status == 200, "%s: %s, status %ld", arguments[0], curl_easy_strerror(r), status);
    MUST(got->n == strtoul(arguments[1], NULL, 10), "%zu bytes", got->n);
    return got->sum;
}

static void first(void)
{
    struct got got;
    CURL *c = handle(arguments[0], &got);
    expected = fetch(c, &got);
    curl_easy_cleanup(c);
}

static void client(int i)
{
    struct got got;
    pthread_once(&once, first); /* it waits inside: the others wait for it */
    CURL *c = handle(arguments[0], &got);
    meet();
    for (int n = 0; n < calls; n++) {
        if (n == calls / 2) { /* a new connection, and a new look-up of the name */
            curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, 1L);
            curl_easy_setopt(c, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
        }
        unsigned sum = fetch(c, &got);
        MUST(sum == expected, "client %d, call %d got other bytes", i, n);
        curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, 0L);
        if (i == 0 && n == calls / 2)
            note_threads();
    }
    finish();
    curl_easy_cleanup(c);
    if (i == 0) { /* errors are curl's own */
        c = handle("http://localhost:1/", &got);
        CURLcode r = curl_easy_perform(c);
        MUST(r == CURLE_COULDNT_CONNECT, "%s", curl_easy_strerror(r));
        curl_easy_cleanup(c);
        c = handle("http://no-such-host.invalid/", &got);
        r = curl_easy_perform(c);
        MUST(r == CURLE_COULDNT_RESOLVE_HOST, "%s", curl_easy_strerror(r));
        curl_easy_cleanup(c);
    }
}

int main(int argc, char **argv)
{
    MUST(curl_global_init(CURL_GLOBAL_ALL) == 0, "curl_global_init");
    return run_crowd(argc, argv, 2, client);
}
