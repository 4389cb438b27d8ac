# The image of prefix-router: the router (default command) and the stand-in vLLM (`simulated-vllm`).
#
#   docker build -t prefix-router .
#   docker run -v ./my.yaml:/etc/prefix-router/prefix-router.yaml:ro -p 8000:8000 prefix-router
#
# Both stages start from the same image, so that the virtual environment finds the same Python where it was
# built and where it runs. The second stage gets that environment only: no source, no build tools.
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY pyproject.toml README.md LICENSE* ./
COPY prefix_router/ prefix_router/
# Byte code is compiled here, once: the running container cannot write it. With the extras that a fleet is found and
# followed by; exact tokenizers and KV events need more, and an image of their own.
RUN pip wheel --no-deps --wheel-dir /wheels . \
    && python -m venv --without-pip /opt/prefix-router \
    && pip --python /opt/prefix-router/bin/python install --compile "$(ls /wheels/*.whl)[dns,kubernetes,tracing]"

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="prefix-router" \
      org.opencontainers.image.description="Prefix-aware HTTP router for vLLM fleets" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/prefix-router/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
COPY --from=build /opt/prefix-router/ /opt/prefix-router/
# A number, so that Kubernetes' runAsNonRoot can check it. The user owns nothing and writes nothing.
USER 65532:65532
WORKDIR /
# Clients, and the admin listener. The admin listener answers on loopback until the configuration opens it.
EXPOSE 8000 9090
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9090/livez', timeout=4)"]
ENTRYPOINT ["prefix-router"]
CMD ["serve", "--config", "/etc/prefix-router/prefix-router.yaml"]
